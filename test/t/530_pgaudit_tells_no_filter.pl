# pgaudit, where it is installed, tells of the functions that people call, and not
# of what ttl has put into their queries, if ttl is loaded after it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->new('pgaudit');
plan(skip_all => 'pgaudit is not installed')
  if !-e $node->config_data('--pkglibdir') . '/pgaudit.so';
$node->init;
$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'pgaudit, ttl'
pgaudit.log = 'function, read, write'
ttl.reaper = off
END
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
CREATE FUNCTION called() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
END

my $start = -s $node->logfile;
$node->safe_psql('postgres', <<'END');
INSERT INTO item (id, ttl) VALUES (1, 5);
SELECT * FROM item;
UPDATE item SET note = 'x', ttl = 6;
INSERT INTO item (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = 'y';
DELETE FROM item;
SELECT called(), ttl.default_ttl('item');
END
my @audited = slurp_file($node->logfile, $start) =~ /AUDIT: SESSION,\d+,\d+,\w+,(\w+,\w*,[\w.]*)/g;
is( join("\n", @audited),
	join("\n", 'INSERT,,', 'SELECT,,', 'UPDATE,,', 'INSERT,,', 'DELETE,,', 'SELECT,,',
		'EXECUTE,FUNCTION,public.called', 'EXECUTE,FUNCTION,ttl.default_ttl'),
	'statements and functions of the user');

$node->stop;
done_testing();
