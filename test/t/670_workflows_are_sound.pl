# The workflows of .github, as YAML: each job has a machine and steps, what it uses is pinned, and the scripts that it runs are there.
use strict;
use warnings;

use Cwd qw(realpath);
use FindBin;
use JSON::PP;

use Test::More;

my $top = realpath("$FindBin::RealBin/../..");
my @workflows = glob("$top/.github/workflows/*.yml");
plan(skip_all => 'no workflows here') if !@workflows;

# YAML as JSON, by whatever there is.  Its 1.1 has "on" for true.
my ($parser) = grep { system("$_ < /dev/null > /dev/null 2>&1") == 0 } (
	q{python3 -c 'import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))'},
	q{ruby -ryaml -rjson -e 'puts YAML.load(STDIN.read).to_json'});
plan(skip_all => 'neither python3-yaml nor ruby is installed') if !defined $parser;

my %image = map { $_ => 1 } 'debian', 'postgres';
for my $workflow (@workflows)
{
	my $name = $workflow =~ s{.*/}{}r;
	my $yaml = decode_json(`$parser < $workflow` || '{}');
	my $on = $yaml->{on} // $yaml->{true};
	my @wrong;

	ok(ref $on eq 'HASH' && ref $yaml->{jobs} eq 'HASH' && %{ $yaml->{jobs} }, "$name: on, and jobs");
	ok($yaml->{permissions}, '... permissions');
	ok(!(exists $on->{push} && exists $on->{pull_request} && !$on->{push}->{branches}), '... runs once for a change');
	for my $job (sort keys %{ $yaml->{jobs} })
	{
		my ($it, @steps) = ($yaml->{jobs}->{$job}, @{ $yaml->{jobs}->{$job}->{steps} // [] });
		my $matrix = $it->{strategy}->{matrix} // {};
		my $image = ref $it->{container} ? $it->{container}->{image} : $it->{container};

		# each image of a matrix
		my @images = !defined $image ? () : $image =~ /^(.*)\$\{\{ matrix\.(\w+) \}\}(.*)$/ ? map { "$1$_$3" } @{ $matrix->{$2} // [''] } : $image;
		push @wrong, map { "$job: image $_" } grep { !/^(\w+):\d+\.\d+/ || !$image{$1} } @images;
		push @wrong, "$job: runs-on" if ($it->{'runs-on'} // '') !~ /^ubuntu-\d/;
		push @wrong, "$job: needs $_" for grep { !$yaml->{jobs}->{$_} } ref $it->{needs} ? @{ $it->{needs} } : $it->{needs} // ();
		push @wrong, "$job: no steps" if !@steps;
		for my $step (@steps)
		{
			push @wrong, "$job: a step with neither uses nor run, or with both" if !(exists $step->{uses} xor exists $step->{run});
			push @wrong, "$job: uses $step->{uses}" if ($step->{uses} // '@' . 'a' x 40) !~ /\@(v\d+\.\d+\.\d+|[0-9a-f]{40})$/;
			push @wrong, map { "$job: runs $_" } grep { !-x "$top/$_" } ($step->{run} // '') =~ m{(?:^|[ /])((?:test|debian)/[\w/-]+)}g;
			push @wrong, map { "$job: matrix.$_" } grep { !exists $matrix->{$_} && !$matrix->{include} } ($step->{run} // '') =~ /\bmatrix\.(\w+)/g;
		}
	}
	is(join("\n", @wrong), '', '... jobs have a machine and steps that are pinned and there');
}

done_testing();
