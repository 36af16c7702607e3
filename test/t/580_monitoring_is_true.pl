# What doc/monitoring offers works: its queries answer; dashboard and alerts ask for nothing that
# the queries don't give.  Where prometheus-postgres-exporter and prometheus are installed, the one
# scrapes a server with its queries, and the other is asked all that the dashboard shows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use List::Util qw(uniq);
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $dir = "$FindBin::RealBin/../../doc/monitoring";
my $log = $PostgreSQL::Test::Utils::log_path;
my %running;

my $node = TtlNode->start_new('watched', "ttl.naptime = 100ms\nttl.cycle_cost_limit = 400\nautovacuum = off\n");
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
CREATE SCHEMA app;
CREATE TABLE app.busy (id int PRIMARY KEY);
CREATE TABLE stuck (id int PRIMARY KEY);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON stuck FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION refuse();
CREATE TABLE kept (id int PRIMARY KEY);
CREATE TABLE backlog (id int PRIMARY KEY);
CREATE TABLE failing (id int PRIMARY KEY);
CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'none of these'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON failing EXECUTE FUNCTION refuse_all();
SELECT ttl.create_container(c, 60) FROM unnest('{app.busy, stuck, kept, backlog, failing}'::regclass[]) c;
INSERT INTO backlog (id, _ts) SELECT g, '2020-01-01'::timestamptz + g * interval '1 min' FROM generate_series(1, 1000000) g;
INSERT INTO failing (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.alter_container('kept', reap_delay => '1000 years');
INSERT INTO stuck (id) VALUES (1), (2);
SET ttl.touch = off;
UPDATE stuck SET _ts = '2020-01-01';
SELECT ttl.set_default_ttl('stuck', 60);
INSERT INTO kept (id, _ts) VALUES (1, '2020-01-01');
END
my $work = q{INSERT INTO app.busy (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 100) g ON CONFLICT DO NOTHING; SELECT ttl.set_default_ttl('app.busy', 60)};
$node->safe_psql('postgres', $work);
ok($node->poll_query_until('postgres', "SELECT count(*) = 2 FROM ttl.stat_containers WHERE container = 'app.busy'::regclass AND rows_deleted = 100 OR blocked_rows = 1"), 'there is something to see');

my $pid = $node->pid_of('ttl reaper', 'postgres');
like(slurp_file("/proc/$pid/cmdline"), qr/ttl reaper for database postgres/, 'ps shows the database') if -e "/proc/$pid/cmdline";

#
# The files themselves
#

# namespace => { query, columns }
my %queries;
my $namespace;
for (split(/\n/, slurp_file("$dir/queries.yaml")))
{
	if (/^(\w+):$/) { $namespace = $1 }
	elsif (/^        usage: (\w+)$/) { $queries{$namespace}->{usage}->{ $queries{$namespace}->{columns}->[-1] } = lc $1 }
	elsif (/^      (.*)/ || /^    (\S.*[^:])$/) { $queries{$namespace}->{query} .= "$1\n" if !$queries{$namespace}->{columns} }
	elsif (/^    - (\w+):$/) { push @{ $queries{$namespace}->{columns} }, $1 }
}
# metric => { type, labels }, query => text, as sql_exporter has them
my (%collected, %collector_queries);
for my $metric (split(/^(?=  - (?:metric|query)_name: )/m, slurp_file("$dir/ttl.collector.yml")))
{
	if (my ($name, $query) = $metric =~ /^  - query_name: (\w+)\n    query: \|\n(.*)/s) { $collector_queries{$name} = $query =~ s/^      //gmr =~ s/\n*\z/\n/r }
	elsif ($metric =~ /^  - metric_name: (\w+)\n    type: (\w+)\n    help: .+\n    key_labels: \[(.*)\]\n    values: \[(\w+)\]\n    query_ref: (\w+)\n/)
	{
		$collected{$1} = "$2 of $5.$4 by $3";
	}
}

my %metrics;
for my $namespace (sort keys %queries)
{
	my ($query, $columns) = @{ $queries{$namespace} }{qw(query columns)};
	is($node->safe_psql('postgres', "SET ROLE monitor; SELECT string_agg(key, ' ' ORDER BY n) FROM (SELECT q FROM ($query) q LIMIT 1) one, json_each(to_json(q)) WITH ORDINALITY e (key, value, n)"),
		"@$columns", "query $namespace");
	$metrics{"${namespace}_$_"} = 1 for @$columns;
}

my %expected;
for my $namespace (keys %queries)
{
	my $usage = $queries{$namespace}->{usage};
	my @columns = @{ $queries{$namespace}->{columns} };
	my $labels = join(', ', grep { $usage->{$_} eq 'label' } @columns);

	$expected{"${namespace}_$_"} = "$usage->{$_} of $namespace.$_ by $labels" for grep { $usage->{$_} ne 'label' } @columns;
}
is_deeply(\%collected, \%expected, 'the collector for sql_exporter has the same metrics');
is_deeply(\%collector_queries, { map { $_ => $queries{$_}->{query} } keys %queries }, '... by the same queries');

my $dashboard = decode_json(slurp_file("$dir/dashboard.json"));
my @targets = map { my $panel = $_; map { [ $panel->{title}, $_->{expr} ] } @{ $panel->{targets} // [] } } @{ $dashboard->{panels} };
my @variables = map { ref $_->{query} ? $_->{query}->{query} : () } @{ $dashboard->{templating}->{list} };
my @alerts = slurp_file("$dir/alerts.yaml") =~ /alert: (\w+)/g;
my %asked;
for (map({ $_->[1] } @targets), @variables, slurp_file("$dir/alerts.yaml"))
{
	$asked{$_} = 1 for grep { !/^ttl_reaper$|^ttl_container$/ } /\bttl_\w+/g;
}
is(join(' ', grep { !$metrics{$_} } sort keys %asked), '', 'dashboard and alerts ask for nothing else');

# The questions of doc/monitoring.md are for this role, too, which owns no container.
my ($questions) = slurp_file("$dir/../monitoring.md") =~ /(.*?)^## /ms;
my @questions = $questions =~ /^```sql\n(SELECT .*?)^```\n/msg;
cmp_ok(scalar(@questions), '>=', 6, 'there are documented questions');
for my $question (@questions)
{
	my ($first) = $question =~ /^SELECT (.*)\n/;
	my ($rc, undef, $error) = $node->psql('postgres', "SET ROLE monitor; $question", on_error_stop => 1);
	is("$rc$error", '0', "answered to pg_monitor: $first");
}

#
# promtool
#

sub installed
{
	my ($program) = @_;

	return grep { -x "$_/$program" } split(/:/, $ENV{PATH});
}

SKIP:
{
	skip 'promtool is not installed', 2 if !installed('promtool');
	command_ok([ 'promtool', 'check', 'rules', "$dir/alerts.yaml" ], 'promtool accepts the alerts');
	command_ok([ 'promtool', 'test', 'rules', "$FindBin::RealBin/../monitoring/alerts_test.yaml" ], '... which fire when they should');
}

#
# The exporter
#

sub start
{
	my ($program, @arguments) = @_;

	$running{$program} = IPC::Run::start([ $program, @arguments ], '<', \undef, '>', "$log/580_$program.log", '2>&1');
	return;
}

END
{
	my $status = $?;
	$_->kill_kill for values %running;
	$? = $status;
}

sub get
{
	my ($url) = @_;
	my $response = HTTP::Tiny->new(timeout => 10, proxy => undef, no_proxy => '*')->get($url);

	return $response->{success} ? $response->{content} : undef;
}

# Waits for what the function says, as long as the programs run.
sub wait_for
{
	my ($function) = @_;

	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $result = $function->();
		return $result if $result;
		$_->pumpable or die "a program has ended, see $log/580_*" for values %running;
		Time::HiRes::usleep(100_000);
	}
	die 'in vain';
}

if (!installed('prometheus-postgres-exporter'))
{
  SKIP: { skip('prometheus-postgres-exporter is not installed', 1); }
	$node->stop;
	done_testing();
	exit;
}

my $exporter = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
{
	local $ENV{DATA_SOURCE_NAME} = 'user=monitor dbname=postgres sslmode=disable host=' . $node->host . ' port=' . $node->port;
	start('prometheus-postgres-exporter', "--web.listen-address=$exporter", "--extend.query-path=$dir/queries.yaml",
		'--disable-default-metrics', '--disable-settings-metrics');
}
my $scrape = wait_for(sub { get("http://$exporter/metrics") });
like($scrape, qr/^pg_exporter_last_scrape_error 0$/m, 'the exporter finds no error');
for my $namespace (sort keys %queries)
{
	my @missing = grep { !/^(datname|schemaname|relname|state|stopped_by)$/ && $scrape !~ /^${namespace}_$_\{.*datname="postgres".*\}/m } @{ $queries{$namespace}->{columns} };
	is("@missing", '', "... scrapes all of $namespace");
}

sub scraped
{
	my ($metric, $relname) = @_;

	return $scrape =~ /^\Q$metric\E\{[^}]*relname="$relname"[^}]*\} (\S+)/m ? $1 : undef;
}
is(scraped('ttl_container_rows_deleted_total', 'busy'), 100, '... as it is: rows deleted');
is(scraped('ttl_container_blocked_rows', 'stuck'), 1, '... blocked');
cmp_ok(scraped('ttl_container_overdue_seconds', 'failing'), '>', 1e8, '... overdue');
is(scraped('ttl_container_overdue_seconds', 'stuck'), 0, '... which blocked rows are not');
cmp_ok(scraped('ttl_container_lag_seconds', 'kept'), '>', 1e8, '... kept');
is(scraped('ttl_container_overdue_seconds', 'kept'), 0, '... which is not overdue');
like($scrape, qr/^ttl_launchers\{.*\} 1$/m, '... the launcher');
SKIP:
{
	skip 'promtool is not installed', 1 if !installed('promtool');
	my $ours = join('', $scrape =~ /^(?:# (?:HELP|TYPE) )?ttl_.*\n/mg);
	my $complaints;
	IPC::Run::run([ 'promtool', 'check', 'metrics' ], '<', \$ours, '>', \$complaints, '2>&1');
	is($complaints, '', '... by names as they should be');
}

#
# Prometheus
#

SKIP:
{
	skip 'prometheus is not installed', 1 if !installed('prometheus');
	my $address = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	my $home = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$home/prometheus.yml", <<"END");
global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}
rule_files: ['$dir/alerts.yaml']
scrape_configs: [{job_name: postgres, static_configs: [{targets: ['$exporter']}]}]
END
	start('prometheus', "--config.file=$home/prometheus.yml", "--storage.tsdb.path=$home/data", "--web.listen-address=$address");

	# The values of a query, by their labels
	my $ask = sub {
		my ($query) = @_;
		my $answer = get("http://$address/api/v1/query?query=" . ($query =~ s/([^\w])/sprintf('%%%02X', ord $1)/ger));
		return defined $answer ? decode_json($answer)->{data}->{result} : [];
	};

	ok( wait_for(
			sub {
				$node->safe_psql('postgres', $work);
				return @{ $ask->('rate(ttl_container_rows_deleted_total{relname="busy"}[1m]) > 0') } &&
				  @{ $ask->('ttl_container_blocked_rows > 0') };
			}),
		'prometheus sees rows go');
	for (@targets)
	{
		my ($title, $query) = @$_;
		$query =~ s/\$(server|datname)\b/.*/g;
		$query =~ s/\$__rate_interval/1m/g;
		my @values = map { $_->{value}->[1] } @{ $ask->($query) };
		ok((grep { !/NaN|Inf/ } @values), "dashboard: $title: $_->[1]");
	}
	for (@variables)
	{
		my ($metric, $label) = /^label_values\((\w+)(?:\{.*\})?, (\w+)\)$/;
		ok(defined $ask->($metric)->[0]->{metric}->{$label}, "dashboard: $_");
	}
	my $rules = decode_json(get("http://$address/api/v1/rules"))->{data}->{groups}->[0]->{rules};
	is(join(' ', map { "$_->{name} $_->{health}" } @$rules), join(' ', map { "$_ ok" } @alerts), 'prometheus evaluates the alerts');

	my $pending = sub { join(' ', sort(uniq(map { $_->{metric}->{alertname} } @{ $ask->('ALERTS') }))) };
	ok(wait_for(sub { $pending->() eq 'TtlBlockedRows TtlLag' }), '... two of them are true');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->restart;
	ok(wait_for(sub { $pending->() =~ /TtlNotPreloaded/ }), '... another one without the library');
}

$node->stop;
done_testing();
