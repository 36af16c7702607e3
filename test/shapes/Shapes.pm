# Shapes.pm - compares the plans of containers with those of plain tables
#
# There are pairs of databases with the same tables.  In the one they are
# containers, in the other they were, and have kept the columns, and got back the
# indexes: PostgreSQL itself must plan the same there, to the cost.  A psql for each
# goes through a file of SQL.  What returns rows is not run but explained; before
# that, the tables that have been made become containers.  Temporary tables, which
# can't, are made permanent.
package shapes::Shapes;

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Exporter 'import';
our @EXPORT = qw(make_pair drop_pair compare_plans);

my $made = 0;

# No table is in tried twice.  What can't be a container is none in either.
my $register = <<'END';
CREATE EXTENSION ttl;
CREATE SCHEMA shapes;
CREATE SCHEMA temporary;
CREATE TABLE shapes.tried (relid oid PRIMARY KEY, error text);
CREATE PROCEDURE shapes.register() LANGUAGE plpgsql AS $$
DECLARE
	t regclass;
	definition text;
	definitions text[];
BEGIN
	FOR t IN
		SELECT oid FROM pg_class
		WHERE relkind IN ('r', 'p') AND NOT relispartition AND relpersistence <> 't'
			AND relnamespace IN ('public'::regnamespace, 'temporary'::regnamespace)
			AND oid NOT IN (SELECT relid FROM shapes.tried) ORDER BY oid
	LOOP
		BEGIN
			PERFORM ttl.create_container(t, 86400);
			IF PLAIN THEN
				definitions := array(SELECT replace(pg_get_indexdef(indexrelid), ' ON ONLY ', ' ON ')
					FROM pg_index WHERE indrelid IN (SELECT t UNION SELECT relid FROM pg_partition_tree(t))
					AND indexrelid NOT IN (SELECT inhrelid FROM pg_inherits) ORDER BY indexrelid);
				PERFORM ttl.drop_container(t);
				FOREACH definition IN ARRAY definitions LOOP
					BEGIN
						EXECUTE definition;
					EXCEPTION WHEN duplicate_table THEN NULL; -- it is not one of ours
					END;
				END LOOP;
			END IF;
			INSERT INTO shapes.tried VALUES (t, NULL);
		EXCEPTION WHEN OTHERS THEN
			INSERT INTO shapes.tried VALUES (t, SQLERRM);
		END;
	END LOOP;
END $$;
END

# Both databases of a pair are made by these files
sub make_pair
{
	my ($node, @files) = @_;
	my %pair;

	for my $side (qw(container plain))
	{
		my $db  = $pair{$side} = "${side}_" . ++$made;
		my $sql = $register =~ s/PLAIN/$side eq 'plain' ? 'true' : 'false'/er;

		$node->safe_psql('postgres', "CREATE DATABASE $db");
		$node->safe_psql($db,        $sql);
		start_psql($node, $db, "$PostgreSQL::Test::Utils::tmp_check/$db", '-f', $_)->finish for @files;
		# no more pages in one than in the other
		$node->safe_psql($db, 'SET client_min_messages = error; CALL shapes.register()');
		$node->safe_psql($db, "SELECT format('VACUUM (%s) %s', how, relid::regclass) FROM unnest('{FULL, ANALYZE}'::text[]) how, shapes.tried ORDER BY how DESC \\gexec");
	}
	return \%pair;
}

sub drop_pair
{
	my ($node, $pair) = @_;

	$node->safe_psql('postgres', "DROP DATABASE $_") for values %$pair;
	return;
}

sub start_psql
{
	my ($node, $db, $out, @options) = @_;

	return IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr($db), @options ],
		'<', \undef, '>', "$out.out", '2>', "$out.err");
}

# The statements of a file, and psql's own commands; data for COPY stays with it
sub statements
{
	my $text = shift;
	my ($sql, $depth, @result) = ('', 0);
	my $end = sub { push @result, "$sql$_[0]" if $sql =~ /\S/; ($sql, $depth) = ('', 0); };

	while ($text =~ /\G(?<token>--[^\n]*|\/\*.*?\*\/|\bE'(?:\\.|[^\\'])*'|'[^']*'|"[^"]*"|\$(\w*)\$.*?\$\g2\$|\\[^\n]*|[();]|\s+|\w+|.)/gsi)
	{
		my $token = $+{token};

		if ($token eq ';' && $depth <= 0)
		{
			$token .= $1 if $sql =~ /^\s*COPY\b.*\bFROM\s+STDIN/is && $text =~ /\G(.*?\n\\\.\n)/gcs;
			$end->($token);
		}
		elsif ($token =~ /^\\/)
		{
			if    ($sql =~ /\S/)                            { $end->(" $token"); }
			elsif ($token =~ /^\\(set|getenv|if|else|elif|endif)\b/) { push @result, $token; }
		}
		elsif ($token =~ m{^(--|/\*)}) { $sql .= ' '; }
		else
		{
			$depth += $token eq '(' ? 1 : $token eq ')' ? -1 : 0;
			$sql .= $token;
		}
	}
	return map { s/^\s+//r } @result;
}

# What psql is told instead: (input, the statement if its plan is to be seen)
sub explained
{
	my $sql = shift;
	my $to_see = $sql =~ s/^EXPLAIN\s*(\([^)]*\)|ANALYZE\b|VERBOSE\b|\s)*//ir;

	return ($sql) if $sql =~ /^\\/;
	# the parent would be no container
	return ('') if $sql =~ /\bINHERIT(S\s*\(|\s+\w+\s*;)/i;
	# a change stamps the rows of a container: its plan is another
	return ($sql) if $to_see =~ /\b(INSERT\s+INTO|DELETE\s+FROM|MERGE\s+INTO|UPDATE\s+(ONLY\s+)?\S+(\s+\S+)?\s+SET)\b/i;
	# its tables are for this transaction or session alone
	$sql =~ s/\s+ON\s+COMMIT\s+(DROP|DELETE\s+ROWS|PRESERVE\s+ROWS)//i;
	if ($sql =~ s/^(CREATE|SELECT.*?\bINTO)\s+(?:LOCAL\s+)?TEMP(?:ORARY)?(?:\s+TABLE)?\s+(?!(?:VIEW|SEQUENCE|RECURSIVE|FUNCTION)\b)("[^"]+"|\w+)//is)
	{
		my ($verb, $table) = ($1, "temporary.$2");

		$verb .= ' TABLE' if uc $verb eq 'CREATE';
		return ("DROP TABLE IF EXISTS $table CASCADE;\n$verb $table$sql");
	}
	return ("SET search_path = public, temporary;\n$sql\nSET search_path = temporary, public;")
	  if $sql =~ /^CREATE\s/i;
	if ($to_see =~ /^[(\s]*(SELECT|WITH|VALUES|TABLE|EXECUTE|DECLARE)\b/i && $to_see !~ /^SELECT\b[^(']*\bINTO\b/i)
	{
		my $also = $to_see eq $sql && ($sql !~ /\bFROM\b/i || $sql =~ /\b(setval|set_config)\b/i || $sql =~ /^DECLARE/i);
		my $query = $to_see =~ s/\s*(;|\\[^\n]*)\s*$//r;

		return ("CALL shapes.register();\n\\echo \@\@\nEXPLAIN (VERBOSE) $query;\n\\echo \@\@ :SQLSTATE\n" . ($also ? $sql : ''), $query);
	}
	return ($sql);
}

# The plan, costs included, without what the filter adds, and parentheses, which
# depend on how many conditions there are.  Tables' numbers are of no account.
sub without_filter
{
	my $plan = shift;

	$plan =~ s/'\d+'::oid/'...'::oid/g;
	$plan =~ s/ttl\.is_live\('[^)]*\)( AND )?//g;
	$plan =~ s/[()]//g;
	$plan =~ s/^ *(Filter: *|Expiry Filter:.*|Query Identifier:.*)\n//mg;
	return $plan;
}

# Plans of a file's queries in both databases, with settings in front; in copies of
# them, if the file changes something:
# { queries, filtered, refused, different => [ { sql, container, plain } ] }
sub compare_plans
{
	my ($node, $pair, $file, %o) = @_;
	my %result = (queries => 0, filtered => 0, refused => 0, different => []);
	my (@queries, %plans, %psql);
	my $script = '';

	for (statements(slurp_file($file)))
	{
		my ($input, $query) = explained($_);

		$script .= "$input\n";
		push @queries, $query if defined $query;
	}
	for my $side (qw(container plain))
	{
		my $files = "$PostgreSQL::Test::Utils::tmp_check/shapes-$side";

		my $db    = $o{copy} ? "copy_$side" : $pair->{$side};

		$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE $pair->{$side}") if $o{copy};
		unlink "$files.sql";
		append_to_file("$files.sql", "SET client_min_messages = error; SET search_path = temporary, public; SET jit = off;\n"
			. ($o{both} // '') . ($o{$side} // '') . "\n$script");
		$psql{$side} = start_psql($node, $db, $files, '-f', "$files.sql");
	}
	for my $side (qw(container plain))
	{
		$psql{$side}->finish;
		my $out = slurp_file("$PostgreSQL::Test::Utils::tmp_check/shapes-$side.out");

		$plans{$side} = [ $out =~ /^\@\@\n(.*?^\@\@ \w+)\n/gms ];
		$node->safe_psql('postgres', "DROP DATABASE copy_$side") if $o{copy};
		die "$file: $side tables: " . @{ $plans{$side} } . ' plans of ' . @queries . "\n" if @{ $plans{$side} } != @queries;
	}
	for my $i (0 .. $#queries)
	{
		my ($container, $plain) = map { $plans{$_}[$i] } qw(container plain);

		$result{queries}++;
		$result{filtered}++ if $container =~ /ttl\.is_live/;
		$result{refused}++ if $container !~ /^\@\@ 00000/m;
		push @{ $result{different} }, { sql => $queries[$i], container => $container, plain => $plain }
		  if $plain =~ /ttl\.is_live/ || without_filter($container) ne without_filter($plain);
	}
	return \%result;
}

1;
