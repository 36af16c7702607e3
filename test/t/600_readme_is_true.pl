# README.md tells the truth: its psql sessions, from the tutorial on, are typed in from top to
# bottom and answer as it says.  Where it shows no answer, none is looked at.
#
# To sleep is to set back the clocks of all rows instead, unless the reaper is to be awaited.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('readme', <<'END');
timezone = 'UTC'
lc_messages = 'C'
ttl.grace = '5min'
END

# What it takes for given
$node->safe_psql('postgres', <<'END');
CREATE TABLE events (note text);
CREATE TABLE log (at timestamptz NOT NULL, line text);
CREATE TABLE orders (id int PRIMARY KEY, created_at timestamptz NOT NULL);
INSERT INTO orders SELECT g, now() - g * interval '1 day' + interval '12 hours' FROM generate_series(1, 30) g;
INSERT INTO orders SELECT g, now() - g * interval '1 day' FROM generate_series(31, 40) g;
END

sub asleep
{
	my ($seconds) = @_;
	return <<"END";
DO \$\$
BEGIN
	IF (SELECT reaping FROM ttl.containers WHERE container = 'sessions'::regclass) THEN
		PERFORM pg_sleep($seconds);
		WHILE ttl.expired_count('sessions') > 0 LOOP
			PERFORM pg_sleep(0.1);
		END LOOP;
	ELSE
		PERFORM set_config('ttl.touch', 'off', true), set_config('ttl.show_expired', 'on', true);
		UPDATE sessions SET _ts = _ts - make_interval(secs => $seconds);
	END IF;
END \$\$;
END
}

# The statements, each with the answer that is shown or undef, and the number of its line

my @statements;
my $in_block = 0;
my $is_sql;
my $is_session;

(my $readme = slurp_file('README.md')) =~ s/^.*?(?=^## Tutorial$)//ms;
my $line = 0;
for (split(/\n/, $readme))
{
	$line++;
	if (/^```(\w*)$/)
	{
		$in_block = !$in_block;
		$is_sql = $in_block && $1 eq 'sql';
		$is_session = 0;
		push @statements, { line => $line, sql => '' } if $is_sql;
	}
	elsif ($is_sql)
	{
		$statements[-1]->{sql} .= "$_\n";
	}
	elsif ($in_block && /^=[*!]?# (.*)/)
	{
		push @statements, { line => $line, sql => "$1\n" };
		$is_session = 1;
	}
	elsif ($is_session)
	{
		$statements[-1]->{answer} .= "$_\n";
	}
}
cmp_ok(scalar @statements, '>', 40, 'README.md has examples');

# Their answers: NOTICEs and the like come before results.

my $script = '';
for my $i (0 .. $#statements)
{
	my $sql = $statements[$i]->{sql};
	$sql = asleep($1) if $sql =~ /^SELECT pg_sleep\((\d+)\);$/;
	$script .= "\\echo \@$i\@\n\\warn \@$i\@\n$sql";
}
my ($out, $err);
IPC::Run::run([ 'psql', '-X', '-d', $node->connstr('postgres') ], '<', \$script, '>', \$out, '2>', \$err);
my @out = split(/^\@\d+\@\n/m, $out);
my @err = split(/^\@\d+\@\n/m, $err);

# Without what differs each time, what hangs on its width, and results that say nothing
sub settled
{
	my ($text) = @_;
	$text =~ s/^ \w+ *\n-+\n *\n\(1 row\)\n//m;
	$text =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00/MOMENT/g;
	$text =~ s/^((batches|cost) +\| )\d+$/$1NUMBER/mg;
	$text =~ s/-{2,}/--/g;
	$text =~ s/ +/ /g;
	$text =~ s/ ?\n/\n/g;
	$text =~ s/\n+$/\n/;
	return $text;
}

for my $i (0 .. $#statements)
{
	my ($sql, $answer) = @{ $statements[$i] }{qw(sql answer)};
	my $real = ($err[ $i + 1 ] // '') . ($out[ $i + 1 ] // '');
	my ($name) = split(/\n/, $sql);

	if (defined $answer && $answer =~ /\S/)
	{
		is(settled($real), settled($answer), $name);
	}
	else
	{
		unlike($real, qr/^(ERROR|WARNING|psql:)/m, $name);
	}
}

$node->stop;
done_testing();
