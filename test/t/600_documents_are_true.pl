# README.md and the pages under doc/ tell the truth.  The psql sessions and the SQL of each page are typed in
# from top to bottom, as a reader would, into a database of its own, and answer as the page says; where it shows
# no answer, none is looked at.  What a statement needs is on the page, in sight: comments are not run, and
# there are none.  What would be in the way of reading stands in <details>.
#
# A block of SQL that says where it is run (```sql front) is for the test of its subject.
# A statement may span lines, until one ends with a semicolon.  To sleep, or to be "-- 31 minutes later",
# is to set back the clocks of all rows instead, unless the reaper is awaited.  Links lead somewhere.  Pages that list
# functions, views, settings, errors or messages leave none out.  README.md names all pages.  Figures were measured.
use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my @pages = ('README.md', sort glob('doc/*.md'));
my @others = ('CONTRIBUTING.md', 'CHANGELOG.md', 'test/bench/README.md');
my %text = map { $_ => slurp_file($_) } @pages, @others;

my $node = TtlNode->start_new('documents', <<'END');
timezone = 'UTC'
lc_messages = 'C'
ttl.grace = '5min'
END

#
# Sessions
#

# Sets back the clocks of all rows (deadlines stay)
sub later
{
	my ($seconds) = @_;
	return <<"END";
DO \$\$
DECLARE
	c record;
BEGIN
	PERFORM set_config('ttl.touch', 'off', true), set_config('ttl.show_expired', 'on', true);
	FOR c IN SELECT container, ts_column AS clock FROM ttl.containers WHERE ts_column IS NOT NULL LOOP
		EXECUTE format('UPDATE %1\$s SET %2\$I = %2\$I - make_interval(secs => $seconds)', c.container, c.clock);
	END LOOP;
END \$\$;
END
}

# The same, unless the reaper of the tutorial is awaited
sub asleep
{
	my ($seconds) = @_;
	return <<"END" . later($seconds) . "\\endif\n";
SELECT reaping FROM ttl.containers WHERE container = 'sessions'::regclass \\gset
\\if :reaping
SELECT pg_sleep($seconds);
\\else
END
}

# The statements of a page in their order, each with the answer that is shown, or undef
sub statements
{
	my ($page) = @_;
	my @statements;

	while ($text{$page} =~ /^```(\w*|sql \w+)\n(.*?)^```$/msg)
	{
		my ($language, $block) = ($1, $2);
		if ($language eq 'sql')
		{
			push @statements, { sql => $block };
		}
		elsif ($block =~ /^=[*!]?# /m)
		{
			for (split(/^(?==[*!]?# )/m, $block))
			{
				# a line with a command of psql, or as far as a semicolon at the end of a line
				my ($sql, $answer) = /^=[*!]?# ([^\n]*\\[^\n]*\n|.*?;(?: *--[^\n]*)?\n)(.*)/s or die "$page: $_";
				push @statements, { sql => $sql, answer => $answer };
			}
		}
	}
	for (@statements)
	{
		my %seconds = (second => 1, minute => 60, hour => 3600, day => 86400);
		$_->{sql} =~ s/^SELECT pg_sleep\((\d+)\);$/asleep($1)/e;
		$_->{sql} =~ s/(?=^.* -- (\d+) (second|minute|hour|day)s? later$)/later($1 * $seconds{$2})/e;
	}
	return @statements;
}

# Without what differs each time, what hangs on its width, and results that say nothing
sub settled
{
	my ($answer) = @_;
	$answer =~ s/^DO\n//;
	$answer =~ s/^ \w+ *\n-+\n *\n\(1 row\)\n//m;
	$answer =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00/MOMENT/g;
	$answer =~ s/^((batches|cost) +\| )\d+$/$1NUMBER/mg;
	$answer =~ s/-{2,}/--/g;
	$answer =~ s/ +/ /g;
	$answer =~ s/ ?\n/\n/g;
	$answer =~ s/\n+$/\n/;
	return $answer;
}

my $answers = 0;

# README.md names each page once, by subjects.  A page begins with a line of those of its subject.
my ($subjects) = $text{'README.md'} =~ /^## Documentation\n(.*)/ms;
my %navigation;
for my $pages ($subjects =~ /^\|[^|]*\| (\[.*\]\(doc\/[^|]*) \|$/mg)
{
	my $line = '[README](../README.md) · ' . $pages =~ s/\(doc\//(/gr;
	push @{ $navigation{$_} }, $line for $pages =~ /\]\((doc\/[^)]*)\)/g;
}
is(join(' ', sort map { ($_) x @{ $navigation{$_} } } keys %navigation), join(' ', sort glob('doc/*.md')), 'README.md names all pages');
for my $page (@pages)
{
	ok($page eq 'README.md' || $text{$page} =~ /^\Q$navigation{$page}[0]\E$/m, "$page: the line of pages");
	unlike($text{$page}, qr/<!--/, "$page: nothing is hidden");
	my @statements = statements($page) or next;
	my $database = lc(basename($page, '.md') =~ s/\W/_/gr);
	my $script = '';
	my ($out, $err);

	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION ttl') unless $text{$page} =~ /^(?:=# )?CREATE EXTENSION ttl;/m;
	# the worker doesn't come before a CALL, where its state isn't shown
	$node->safe_psql($database, 'SELECT ttl.pause()') unless $text{$page} =~ /CREATE EXTENSION ttl;|ttl\.status/;

	# Their answers: NOTICEs and the like come before results.
	$script .= "\\echo \@$_\@\n\\warn \@$_\@\n$statements[$_]->{sql}" for 0 .. $#statements;
	IPC::Run::run([ 'psql', '-X', '-d', $node->connstr($database) ], '<', \$script, '>', \$out, '2>', \$err)
	  or die "$page: $err";
	my @out = split(/^\@\d+\@\n/m, $out);
	my @err = split(/^\@\d+\@\n/m, $err);

	for my $i (0 .. $#statements)
	{
		my ($sql, $answer) = @{ $statements[$i] }{qw(sql answer)};
		my $real = ($err[ $i + 1 ] // '') . ($out[ $i + 1 ] // '');
		my ($name) = "$page: " . ($sql =~ /^(.*)$/m)[0];

		if (defined $answer && $answer =~ /\S/)
		{
			is(settled($real), settled($answer), $name);
			$answers++;
		}
		else
		{
			unlike($real, qr/^(ERROR|WARNING|psql:)/m, $name);
		}
	}
}

cmp_ok($answers, '>', 25, 'there are answers');

#
# Links
#

# The anchors of a page's headings, as GitHub makes them
sub anchors
{
	my ($page) = @_;
	my $text = $text{$page} // slurp_file($page);
	my %anchors;

	$text =~ s/^```.*?^```$//msg;
	while ($text =~ /^#+ (.*)/mg)
	{
		my $anchor = lc $1;
		$anchor =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
		$anchor =~ s/[^\w -]//g;
		$anchor =~ tr/ /-/;
		my $count = $anchors{$anchor}++;
		$anchors{"$anchor-$count"} = 1 if $count > 0;
	}
	return \%anchors;
}

for my $page (@pages, @others)
{
	my $text = $text{$page} =~ s/^```.*?^```$//msgr =~ s/`[^`\n]*`//gr;
	my @broken;

	while ($text =~ /\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)/g)
	{
		my ($file, $anchor) = ($1, $2);
		$file = $file eq '' ? $page : dirname($page) . "/$file";
		1 while $file =~ s{(^|/)(?!\.\./)[^/]+/\.\./}{$1};
		$file =~ s{^\./}{};
		push @broken, "$file" . (defined $anchor ? "#$anchor" : '')
		  if !-e $file || (defined $anchor && !anchors($file)->{$anchor});
	}
	is("@broken", '', "$page: links lead somewhere");
}

#
# Figures
#

# Those in tables that have a column for each version are in the results of the benchmark on that version.
for my $page ('doc/performance.md')
{
	my ($figures, @strange) = (0);

	while ($text{$page} =~ /^\|[^|\n]*\|((?: \d+ \|)+)\n\|[- |]+\|\n((?:\|.*\n)+)/mg)
	{
		my ($head, $body) = ($1, $2);
		my @majors = $head =~ /\d+/g;
		my @measured = map {
			my %is = map { /^[\d.]+$/ ? (sprintf('%.2f', $_) => 1) : () } split(/[\t\n]/, slurp_file("test/bench/results/$_/data.tsv"));
			\%is
		} @majors;

		for my $row (split /\n/, $body)
		{
			my (undef, $work, @cells) = split(/ *\| */, $row);
			for my $i (0 .. $#majors)
			{
				my @figures = ($cells[$i] // '') =~ /\d+\.\d+/g;
				$figures += @figures;
				push @strange, map { "$work on $majors[$i]: $_" } grep { !$measured[$i]{$_} } @figures;
			}
		}
	}
	cmp_ok($figures, '>', 10, "$page: figures");
	is(join("\n", @strange), '', "$page: figures were measured");
}

#
# Messages in the log
#

for my $file (glob('src/*.c src/*/*.c'))
{
	my $source = slurp_file($file);
	while ($source =~ /ereport\((LOG|WARNING),.*?errmsg(?:_plural)?\("((?:[^"\\]|\\.)*)"/sg)
	{
		my ($level, $message) = ($1, $2);
		$message =~ s/\\"/"/g;
		$message =~ s/%l*[dmsu]/.../g;
		ok($text{'doc/messages.md'} =~ /^\| $level \|.*`\Q$message\E`/m, "$level: $message");
	}
}

#
# Pages to look up
#

my $functions = $text{'doc/functions.md'} =~ s/\s+/ /gr;
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');

# Those whose results are views, too, are described there.
for (split(/\n/, $node->safe_psql('postgres', <<'END')))
SELECT proname || '(' || regexp_replace(pg_get_function_arguments(p.oid), '::[][a-z ]+|\mIN ', '', 'g') || ')'
  FROM pg_proc p
 WHERE pronamespace = 'ttl'::regnamespace
   AND proname NOT IN ('archive', 'is_live', 'is_expired', 'stamp', 'complete', 'item_expiry', 'item_ttl', 'instant', 'expiring_rows', 'on_write', 'check_reference', 'restore_container',
	'shard_stamp', 'shard_now', 'stat_shards')
   AND to_regclass('ttl.' || proname) IS NULL
 ORDER BY 1
END
{
	ok($functions =~ qr/\Q$_\E/, "functions: $_");
}

for (split(/\n/, $node->safe_psql('postgres', <<'END')))
SELECT relname, string_agg(attname, ' ' ORDER BY attnum)
  FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid AND attnum > 0 AND NOT attisdropped
 WHERE relnamespace = 'ttl'::regnamespace AND relkind = 'v'
 GROUP BY 1 ORDER BY 1
END
{
	my ($view, $columns) = split(/\|/);
	my ($section) = $text{'doc/views.md'} =~ /^#+ `ttl\.$view`$(.*?)(?=^#|\z)/ms;
	my @missing = grep { ($section // '') !~ /^\|[^|]*`$_`[^|]*\|/m } split(/ /, $columns);
	is("@missing", '', "views: columns of ttl.$view");
}

my %who = (user => 'any user', superuser => 'superuser', sighup => 'reload', postmaster => 'restart', internal => 'nobody');
for (split(/\n/, $node->safe_psql('postgres', <<'END')))
SELECT name, CASE current_setting(name) WHEN '' THEN 'empty' ELSE '`' || current_setting(name) || '`' END, context
  FROM pg_settings WHERE name LIKE 'ttl.%' ORDER BY 1
END
{
	my ($name, $value, $context) = split(/\|/);
	ok($text{'doc/settings.md'} =~ qr/^\| `\Q$name\E` \| \Q$value\E \| $who{$context}\b/m, "settings: $name");
}

# Defaults that are named in passing: `ttl.workers` (4)
for my $page (@pages)
{
	for ($text{$page} =~ /(`\w+\.?\w+` \(\d\w*\))/g)
	{
		my ($name, $value) = /`(.*)` \((.*)\)/;
		my $default = $node->safe_psql('postgres', "SELECT current_setting('$name', true)");
		is($value, $default, "$page: $_") if $default ne '';
	}
}

# Errors that the code raises
open(my $codes, '<', $ENV{SHAREDIR} // (`pg_config --sharedir` =~ s/\s+$//r) . '/errcodes.txt') or die "errcodes.txt: $!";
my %sqlstate = map { /^(\w{5})\s+\w\s+(ERRCODE_\w+)/ ? ($2 => $1) : () } <$codes>;
my %raised = map { map { $_ => 1 } slurp_file($_) =~ /\berrcode\((ERRCODE_\w+)\)/g } glob('src/*.c src/*/*.c');
for (sort keys %raised)
{
	my $state = $sqlstate{$_} or next;
	ok($text{'doc/errors.md'} =~ qr/^\|[^|]*\b$state\b/m, "errors: $state, $_") unless $state =~ /^(00|01|XX)/;
}

# Hooks that it sets
my %hooks = map { map { $_ => 1 } slurp_file($_) =~ /^\t(?!prev_)(\w+_hook) = /mg } glob('src/*.c src/*/*.c');
is(join(' ', grep { $text{'doc/internals.md'} !~ /`$_`/ } sort keys %hooks), '', 'internals: hooks');

$node->stop;
done_testing();
