# Each hook of a library that is preloaded before ttl is called, and is told of the functions that users call, not
# of those that ttl puts into plans.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Test::More;
use TestModule;
use TtlNode;

my $module = TestModule::build('hooks');

my $node = TtlNode->new('before');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = '$module,ttl'\nttl.reaper = off\n");
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 60);
CREATE FUNCTION of_user(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
END

my ($called) = $node->safe_psql('postgres', <<'END') =~ /(.*)$/;
EXPLAIN SELECT FROM item WHERE of_user(id) = 1;
SELECT FROM item WHERE of_user(1) = 1;
INSERT INTO item VALUES (1);
SHOW hooks.called;
END
my @all = qw(shmem_request shmem_startup post_parse_analyze planner build_simple_rel
  ExecutorStart ExecutorRun ExecutorFinish ExecutorEnd ProcessUtility object_access of_user);
push @all, 'explain_per_node' if $node->safe_psql('postgres', 'SHOW server_version_num') >= 180000;
is_deeply([ sort split / /, $called ], [ sort @all ], 'each is called, and knows no function of ttl');

$node->stop;
done_testing();
