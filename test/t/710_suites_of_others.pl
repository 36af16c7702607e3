# Test suites that others wrote for their own programs, unmodified: once in a database of plain tables, once where an
# event trigger makes a container of each table that a suite creates.  A test that fails there alone is a difference;
# each that is known is named below, with the reason, and any other fails.
#
#   SUITES    which, as "sqlalchemy keyv pg-boss=/path/to/its/source"; test/clients/suites sets it, and installs what they need
#
# Packages of Debian and npm carry the suites of SQLAlchemy and of Keyv's stores.  The others run from a directory
# that holds the program's source, at the version that is to be tried.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Cwd ();
use IPC::Run ();
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my %asked = map { /^([^=]+)(?:=(.*))?$/s; $1 => $2 } split(/ /, $ENV{SUITES} // '');
plan(skip_all => 'test/clients/suites runs it') if !%asked;

my $clients = Cwd::abs_path("$FindBin::RealBin/../clients");
my $work    = $PostgreSQL::Test::Utils::tmp_check;
my ($nodejs) = grep { -x } glob("$clients/node_modules/node-linux-*/bin");

my $columns = 'lists the columns of a table: there are two more';
my $indexes = 'lists the indexes of a table, or counts on there being none: there are two more';

# Those of Django's that work with tables
my @django = qw(
	aggregation aggregation_regress annotations backends basic bulk_create cache constraints custom_columns custom_lookups custom_pk
	datatypes dates datetimes db_functions defer delete delete_regress distinct_on_fields expressions expressions_case expressions_window
	fixtures force_insert_update from_db_value generic_relations get_or_create indexes inspectdb introspection lookup m2m_through
	many_to_many many_to_one migrations model_fields model_inheritance multiple_database one_to_one ordering postgres_tests
	prefetch_related queries raw_query schema select_for_update select_related serializers sessions_tests timezones transactions
	unmanaged_models update update_only_fields validation
);

# as doc/frameworks.md says; there in a schema of their own
my $symfony = <<'END' =~ s/SELECT ttl\.create_container\('app\.(\w+)',(.*?)\);/WHEN '$1' THEN ttl.create_container(t,$2)/gsr;
SELECT ttl.create_container('app.cache_items', -1, ts_column => 'item_time', ts_unit => 'epoch', ttl_column => 'item_lifetime',
                            touch_on_update => false);
SELECT ttl.create_container('app.sessions', -1, ts_column => NULL, ttl_column => 'sess_lifetime', ttl_unit => 'epoch');
SELECT ttl.create_container('app.lock_keys', -1, ts_column => NULL, ttl_column => 'key_expiration', ttl_unit => 'epoch');
END

my %suites = (
	'sqlalchemy' => {
		prepare => \&prepare_sqlalchemy,
		command => [ '/usr/bin/python3', '-m', 'pytest', '-v', '--tb=short', '--dburi', 'postgresql+psycopg2://' ],
		read    => \&read_pytest,
		known   => [
			[ qr/ComponentReflectionTestExtra.*::test_(?:nullable|numeric)_reflection$/, $columns ],
			[ qr/ComponentReflectionTest_.*::test_(?:get_indexes|get_noncol_index|get_unique_constraints)\[/, $indexes ],
			[ qr/HasIndexTest_.*::test_has_index/, $indexes ],
			[ qr/LongNameBlowoutTest_.*::test_long_convention_name\[ix/, $indexes ],
			[ qr/QuotedNameArgumentTest_.*::test_get_indexes\[/, $indexes ],
		],
	},
	'keyv' => {
		prepare => \&prepare_keyv,
		command => [ 'npx', 'vitest', 'run', '--reporter=json', '--outputFile=result.json' ],
		read    => \&read_vitest,
		known   => [],
	},
	'connect-pg-simple' => {
		source  => 1,
		prepare => \&install_packages,
		command => [ 'npx', 'mocha', '--exit', '--reporter', 'json', '--reporter-option', 'output=result.json', 'test/**/*.spec.js' ],
		read    => \&read_mocha,
		known   => [],
	},
	'django' => {
		source  => 1,
		prepare => \&prepare_django,
		# as doc/frameworks.md says
		register => q{CASE r.relname WHEN 'django_session' THEN ttl.create_container(t, -1, ts_column => NULL, ttl_column => 'expire_date')
			WHEN 'test cache table' THEN ttl.create_container(t, -1, ts_column => NULL, ttl_column => 'expires')
			ELSE ttl.create_container(t, 3600) END},
		command => [ '/usr/bin/python3', 'tests/runtests.py', '--settings=suite_settings', '--parallel=1', '--noinput', @django ],
		read    => \&read_results,
		known   => [
			[ qr/^introspection\.tests\.IntrospectionTests\.test_get_table_description_(?:names|nullable|types)$/, $columns ],
			[ qr/^schema\.tests\.SchemaTests\.test_m2m_(?:rename_field_in_target_model|through_alter)/, $columns ],
			[ qr/^introspection\.tests\.IntrospectionTests\.test_get_constraints/, $indexes ],
			[ qr/^cache\.tests\.DBCache\w*Tests\.test_get_many_num_queries$/, 'counts the query that deletes an expired entry: there is nothing to delete' ],
			[ qr/^sessions_tests\.tests\.DatabaseSession\w*Tests\.test_clearsessions_command$/, 'counts an expired session before it is deleted' ],
		],
	},
	'symfony' => {
		source  => 1,
		prepare => \&prepare_symfony,
		register => "CASE r.relname $symfony END",
		command => [ 'phpunit', '--log-junit', 'result.xml', '--filter', '/^((?!SQLite|testUrlDsn).)*$/' ],
		read    => \&read_junit,
		known   => [ [ qr/^PdoSessionHandlerTest: testSessionGC$/, 'counts an expired session before it is deleted' ] ],
	},
	'graphile-worker' => {
		source  => 1,
		prepare => \&prepare_graphile_worker,
		# it is done before all of its connections are
		command => [ 'node', '--experimental-vm-modules', 'node_modules/.bin/jest', '--runInBand', '--forceExit', '--json', '--outputFile=result.json' ],
		read    => \&read_vitest,
		known   => [ [ qr/^jobsView\.test\.ts: jobs view renders jobs$/, $columns ] ],
	},
	'pg-boss' => {
		source  => 1,
		prepare => \&prepare_pg_boss,
		# it makes these first and attaches them then, which is refused to containers
		tables  => "r.relname !~ '^(job_common|j[0-9a-f]{50,})\$'",
		command => [ 'npx', 'vitest', 'run', '--maxWorkers=4', '--reporter=json', '--outputFile=result.json' ],
		read    => \&read_vitest,
		known   => [
			[ qr/^driftTest\.ts: drift detectSchemaDrift \(integration\)/, 'compares columns with its own: there are two more' ],
		],
	},
);

my $node = TtlNode->start_new('suites', <<'END');
max_connections = 400
fsync = off
jit = off
max_prepared_transactions = 10
timezone = 'UTC'
lc_messages = 'C'
ttl.cycle_cost_limit = 1000
END
$node->safe_psql('postgres', "DO \$\$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'postgres') THEN CREATE ROLE postgres SUPERUSER LOGIN; END IF; END \$\$");

my $register = <<'END';
CREATE SCHEMA suite;
CREATE FUNCTION suite.register() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
    t oid;
BEGIN
    FOR t IN SELECT c.objid FROM pg_event_trigger_ddl_commands() c
                JOIN pg_class r ON r.oid = c.objid
              WHERE c.object_type = 'table' AND NOT c.in_extension AND c.schema_name <> 'pg_temp' AND (CONDITION) LOOP
        BEGIN
            PERFORM REGISTER FROM pg_class r WHERE r.oid = t;
            RAISE LOG 'registered %', t::regclass;
        -- a partition, a child, a table that has columns of these names, or one that the command has dropped again
        EXCEPTION WHEN wrong_object_type OR feature_not_supported OR duplicate_object OR duplicate_column OR undefined_table THEN
        END;
    END LOOP;
END $$;
CREATE EVENT TRIGGER register ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO')
    EXECUTE FUNCTION suite.register();
END

for my $name (sort keys %asked)
{
	my $suite = $suites{$name} or die "no such suite: $name";
	my $source = $asked{$name};
	my $log = -s $node->logfile;
	my %result;

	SKIP:
	{
		skip "$name: needs the directory of its source, as $name=/path", 4 if $suite->{source} && !defined $source;

		my $dir = "$work/$name";
		mkdir $dir;
		IPC::Run::run([ 'cp', '-R', "$source/.", $dir ]) or die "$source cannot be copied" if defined $source;
		for my $kind ('plain', 'containers')
		{
			my $database = $name =~ tr/-/_/r . "_$kind";
			my $output;

			$node->safe_psql('postgres', "CREATE DATABASE $database");
			$node->safe_psql($database, 'CREATE SCHEMA test_schema; CREATE EXTENSION ttl');
			$node->safe_psql($database, $register =~ s/CONDITION/$suite->{tables} \/\/ 'true'/er =~ s/REGISTER/$suite->{register} \/\/ 'ttl.create_container(t, 3600)'/er) if $kind eq 'containers';
			local %ENV = (
				%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $database, PGUSER => 'postgres', TZ => 'UTC', CI => 'true',
				PYTHONDONTWRITEBYTECODE => 1, HOME => $dir, PATH => join(':', $nodejs // (), $ENV{PATH}),
				DATABASE_URL => "postgresql:///$database?host=" . $node->host . '&port=' . $node->port);
			$suite->{prepare}->($dir, $database) or die "$name cannot be prepared";
			unlink "$dir/result.json", "$dir/result.xml";
			IPC::Run::run($suite->{command}, '<', \'', '>', \$output, '2>', \$output,
				init => sub { chdir $dir or die "$dir: $!" }, IPC::Run::timeout($ENV{SUITES_SECONDS} || 3000));
			append_to_file("$work/log/$name-$kind.log", $output);
			$result{$kind} = $suite->{read}->($dir, $output);
		}

		# what fails in plain tables, too, is not ours
		my ($plain, $containers) = @result{qw(plain containers)};
		my @differences = grep { $containers->{$_} eq 'failed' && ($plain->{$_} // '') ne 'failed' } sort keys %$containers;
		my (@new, %known);
		for my $test (@differences)
		{
			my ($why) = map { $_->[1] } grep { $test =~ $_->[0] } @{ $suite->{known} };

			push @new, $test if !defined $why;
			$known{$why}++ if defined $why;
		}
		my ($passed, $there) = map { my $kind = $_; scalar grep { $_ eq 'passed' } values %$kind } $containers, $plain;

		note "$name: $passed tests pass with containers, $there with plain tables; " . @differences . ' differences';
		note "  $known{$_}: $_" for sort keys %known;
		cmp_ok($there, '>', 10, "$name runs");
		ok(slurp_file($node->logfile, $log) =~ /LOG:  registered /, '... in containers');
		is(join("\n", @new), '', '... and finds no new difference') or diag("see $work/log/$name-containers.log");
		is(scalar(grep { !exists $containers->{$_} } keys %$plain), 0, '... in any of its tests');
	}
}

$node->stop;
done_testing();

#
# How they are prepared
#

sub write_file
{
	my ($file, $text) = @_;

	unlink $file;
	append_to_file($file, $text);
	return;
}

sub run_in
{
	my ($dir, @command) = @_;
	return IPC::Run::run(\@command, '>', '/dev/null', init => sub { chdir $dir or die "$dir: $!" });
}

# What npm has to install, once, without running scripts of packages
sub install_packages
{
	my ($dir) = @_;

	return 1 if -d "$dir/node_modules";
	return run_in($dir, 'npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error');
}

# The suite for dialects, as SQLAlchemy's README.dialects.rst says
sub prepare_sqlalchemy
{
	my ($dir) = @_;

	write_file("$dir/conftest.py", <<'END');
import pytest
pytest.register_assert_rewrite("sqlalchemy.testing.assertions")
from sqlalchemy.testing.plugin.pytestplugin import *
END
	write_file("$dir/test_suite.py", "from sqlalchemy.testing.suite import *\n");
	write_file("$dir/setup.cfg", <<'END');
[tool:pytest]
addopts = -p no:cacheprovider -p no:warnings
python_files = test_*.py
[sqla_testing]
requirement_cls = sqlalchemy.testing.requirements:SuiteRequirements
profile_file = profiles.txt
[db]
default = postgresql+psycopg2://
END
	return 1;
}

# Keyv's own suite for any store
sub prepare_keyv
{
	my ($dir) = @_;

	write_file("$dir/package.json", <<'END');
{
  "private": true,
  "type": "module",
  "dependencies": { "@keyv/postgres": "2.2.3", "@keyv/test-suite": "2.1.2", "keyv": "5.6.0", "vitest": "4.1.10" }
}
END
	write_file("$dir/store.test.js", <<'END');
import keyvTestSuite, { keyvIteratorTests } from '@keyv/test-suite';
import KeyvPostgres from '@keyv/postgres';
import Keyv from 'keyv';
import * as vitest from 'vitest';

const store = () => new KeyvPostgres({ uri: process.env.DATABASE_URL, iterationLimit: 2 });

keyvTestSuite(vitest, Keyv, store);
keyvIteratorTests(vitest, Keyv, store);
vitest.beforeEach(async () => { await store().clear(); });
END
	return install_packages($dir);
}

# The server of this test in place of theirs.  Tests of the command line and of connection strings fail with plain tables, too.
sub prepare_pg_boss
{
	my ($dir, $database) = @_;
	my $host = $node->host;
	my $port = $node->port;

	write_file("$dir/test/config.json", qq({ "host": "$host", "port": $port, "database": "$database", "user": "postgres", "password": "", "uuid": "v4", "max": 3, "debug": false }));
	return install_packages($dir);
}

# Its databases are made of ours as a template.  Its own runner tells by pictures of all kinds how a test ends: this one says it.
sub prepare_django
{
	my ($dir, $database) = @_;

	write_file("$dir/tests/suite_settings.py", <<"END" . <<'END');
def database(name):
    return {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "TEST": {"NAME": "${database}_" + name, "TEMPLATE": "$database"}}
END

DATABASES = {"default": database("one"), "other": database("two")}
SECRET_KEY = "secret"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
TEST_RUNNER = "suite_runner.Runner"
END
	write_file("$dir/tests/suite_runner.py", <<'END');
import json
import unittest

from django.test.runner import DiscoverRunner

results = {}


class Result(unittest.TextTestResult):
    def stopTest(self, test):
        results.setdefault(test.id(), "passed")
        super().stopTest(test)

    def addError(self, test, err):
        results[test.id()] = "failed"
        super().addError(test, err)

    def addFailure(self, test, err):
        results[test.id()] = "failed"
        super().addFailure(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            results[test.id()] = "failed"
        super().addSubTest(test, subtest, err)

    def addSkip(self, test, reason):
        results.setdefault(test.id(), "skipped")
        super().addSkip(test, reason)


class Runner(DiscoverRunner):
    def get_resultclass(self):
        return Result

    def run_suite(self, suite, **kwargs):
        result = super().run_suite(suite, **kwargs)
        with open("result.json", "w") as file:
            json.dump(results, file)
        return result
END
	return 1;
}

# What its stores of PDO keep caches, sessions and locks in.  Its tests name files of SQLite: other names take their place.
sub prepare_symfony
{
	my ($dir) = @_;
	my $components = "$dir/src/Symfony/Component";
	my @files = ("$components/Cache/Tests/Adapter/PdoAdapterTest.php", "$components/Lock/Tests/Store/PdoStoreTest.php",
		"$components/HttpFoundation/Tests/Session/Storage/Handler/PdoSessionHandlerTest.php");

	for my $file (@files)
	{
		my $text = slurp_file($file);

		# a file that a whole class shares; one, or memory, that is new for each test
		$text =~ s/'sqlite:'\.self::\$dbFile/\\suite_dsn()/g;
		$text =~ s/'sqlite:'\.\$this->dbFile|(?<=\()'sqlite::memory:'/\\suite_new_dsn()/g;
		write_file($file, $text);
	}
	write_file("$dir/suite.php", <<'END');
<?php
foreach (['Symfony/Component/Cache', 'Symfony/Component/HttpFoundation', 'Symfony/Component/Lock', 'Cache/IntegrationTests'] as $package) {
    require_once "$package/autoload.php";
}
spl_autoload_register(function ($class) {
    $file = __DIR__.'/src/'.strtr($class, '\\', '/').'.php';
    if (str_contains($class, '\\Tests\\') && is_file($file)) {
        require_once $file;
    }
});

function suite_dsn()
{
    return 'pgsql:user='.getenv('PGUSER');
}

function suite_new_dsn()
{
    (new PDO(suite_dsn()))->exec('DROP TABLE IF EXISTS sessions');
    return suite_dsn();
}
END
	write_file("$dir/phpunit.xml", '<phpunit bootstrap="suite.php"><testsuites><testsuite name="symfony">'
		. join('', map { "<file>$_</file>" } @files) . '</testsuite></testsuites></phpunit>');
	return 1;
}

# Each of its tests makes a database of graphile_worker_testtemplate, which its scripts make, of template1.  This one is made
# of ours.  Its packages disagree on a version of React, which its pages need, and nothing else does.
sub prepare_graphile_worker
{
	my ($dir, $database) = @_;

	write_file("$dir/.npmrc", "legacy-peer-deps=true\n");
	-d "$dir/dist" or install_packages($dir) && run_in($dir, 'npm', 'run', 'prepack') or return 0;
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS graphile_worker_testtemplate');
	$node->safe_psql('postgres', "CREATE DATABASE graphile_worker_testtemplate TEMPLATE $database");
	# in another directory: the configuration that lies in its own is for its developers
	return run_in($work, 'node', "$dir/dist/cli.js", '--schema-only', '-c', $ENV{DATABASE_URL} =~ s/$database/graphile_worker_testtemplate/r);
}

#
# What they say: a hash of tests, each passed, failed or skipped
#

sub read_pytest
{
	my (undef, $output) = @_;
	my %states = (PASSED => 'passed', FAILED => 'failed', ERROR => 'failed', SKIPPED => 'skipped', XFAIL => 'skipped', XPASS => 'passed');

	# the server's version is part of the names
	return { map { /^(\S+::.*) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b/ ? ($1 => $states{$2}) : () } split(/\n/, $output) };
}

sub read_vitest
{
	my ($dir) = @_;
	my $result = JSON::PP::decode_json(slurp_file("$dir/result.json"));

	return { map { my $file = $_->{name} =~ s/^.*\///r; map { ("$file: $_->{fullName}" => $_->{status} =~ /^(?:passed|failed)$/ ? $_->{status} : 'skipped') } @{ $_->{assertionResults} } } @{ $result->{testResults} } };
}

sub read_results
{
	my ($dir) = @_;
	return JSON::PP::decode_json(slurp_file("$dir/result.json"));
}

sub read_mocha
{
	my ($dir) = @_;
	my $result = JSON::PP::decode_json(slurp_file("$dir/result.json"));

	return { (map { ($_->{fullTitle} => 'passed') } @{ $result->{passes} }), (map { ($_->{fullTitle} => 'failed') } @{ $result->{failures} }) };
}

sub read_junit
{
	my ($dir) = @_;
	my $result = slurp_file("$dir/result.xml");
	my %tests;

	while ($result =~ m{<testcase name="([^"]*)" class="([^"]*)"[^>]*?(?:/>|>(.*?)</testcase>)}gs)
	{
		my ($name, $class, $content) = ($1, $2, $3 // '');

		$tests{ ($class =~ s/.*\\//r) . ": $name" } = $content =~ /<skipped/ ? 'skipped' : $content =~ /<(?:failure|error|warning)/ ? 'failed' : 'passed';
	}
	return \%tests;
}
