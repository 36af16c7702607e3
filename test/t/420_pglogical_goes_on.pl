# pglogical, which looks for conflicting rows itself: an expired one on the
# subscriber doesn't stop it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $provider = TtlNode->new('provider');
my $subscriber = TtlNode->new('subscriber');
for my $node ($provider, $subscriber)
{
	$node->init(allows_streaming => 'logical');
	$node->start;
	if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pglogical'") eq '0')
	{
		plan skip_all => 'pglogical is not installed';
	}
	# a setting of later minor releases
	$node->append_conf('postgresql.conf', "output_plugin_libraries = 'pgoutput, pglogical_output'")
	  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'") eq '1';
	$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'pglogical, ttl'
track_commit_timestamp = on
ttl.reaper = off
END
	$node->restart;
	$node->safe_psql('postgres', <<'END');
CREATE EXTENSION pglogical;
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, code int UNIQUE, note text);
CREATE UNIQUE INDEX ON item (lower(note));
SELECT ttl.create_container('item', 3600);
END
}

my $dsn = $provider->connstr . ' dbname=postgres';
$provider->safe_psql('postgres', "SELECT pglogical.create_node('provider', '$dsn'); SELECT pglogical.replication_set_add_table('default', 'item')");
my $own = $subscriber->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "SELECT pglogical.create_node('subscriber', '$own')");
$subscriber->safe_psql('postgres', "SELECT pglogical.create_subscription('sub', '$dsn')");
ok($subscriber->poll_query_until('postgres', "SELECT status = 'replicating' FROM pglogical.show_subscription_status()"), 'replicating');

$subscriber->safe_psql('postgres', "INSERT INTO item (id, code, note, _ts) VALUES (1, 1, 'a', '2020-01-01'), (2, 2, 'b', '2020-01-01'), (3, 3, 'c', '2020-01-01')");
$provider->safe_psql('postgres', "INSERT INTO item (id, code, note) VALUES (1, 11, 'new')");
$provider->safe_psql('postgres', "INSERT INTO item (id, code, note) VALUES (12, 2, 'by its code')");
# an index that pglogical doesn't look at
$provider->safe_psql('postgres', "INSERT INTO item (id, code, note) VALUES (13, 13, 'C')");
my $rows = 'SET ttl.show_expired = on; SELECT id, code, note FROM item ORDER BY id';
my $expected = $provider->safe_psql('postgres', $rows);
ok($subscriber->poll_query_until('postgres', "SELECT count(*) = 3 FROM item"), 'an expired row on the key, whichever it is');
is($subscriber->safe_psql('postgres', $rows), $expected, '... has made room');
unlike(slurp_file($subscriber->logfile), qr/ERROR:.*(invisible|duplicate)/, '... without an error');

$subscriber->stop;
$provider->stop;
done_testing();
