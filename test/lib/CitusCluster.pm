# CitusCluster.pm - a coordinator and workers of Citus, with ttl on each
#
# Each node is a TtlNode of its own: $cluster->coordinator, $cluster->workers.
# Citus's nodes speak to each other over 127.0.0.1.
package CitusCluster;

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

# Ends the test where there is no Citus.
sub skip_unless_installed
{
	my $sharedir = `pg_config --sharedir` =~ s/\s+$//r;

	plan(skip_all => 'Citus is not installed') if !-e "$sharedir/extension/citus.control";
	return;
}

# A coordinator and two workers, or another number, that run; ttl has been created.
sub start_new
{
	my ($class, $settings, $workers) = @_;
	my $self = bless { settings => $settings // '', nodes => [] }, $class;

	$self->start_node('coordinator');
	$self->coordinator->safe_psql('postgres', "SELECT citus_set_coordinator_host('127.0.0.1', " . $self->coordinator->port . ')');
	$self->add_worker for 1 .. $workers // 2;
	$self->coordinator->safe_psql('postgres', 'CREATE EXTENSION ttl');
	return $self;
}

sub start_node
{
	my ($self, $name) = @_;
	# newer releases refuse other libraries, and Citus has one for moves of shards
	my $plugins =
	  `postgres --describe-config` =~ /^output_plugin_libraries\t/m
	  ? "output_plugin_libraries = 'pgoutput, citus'\n"
	  : '';
	my $node = TtlNode->start_new($name, <<END . $plugins . $self->{settings}, allows_streaming => 'logical');
shared_preload_libraries = 'citus,ttl'
listen_addresses = '127.0.0.1'
citus.local_hostname = '127.0.0.1'
citus.node_conninfo = 'sslmode=disable'
citus.shard_count = 4
citus.enable_statistics_collection = off
max_connections = 100
shared_buffers = 32MB
max_prepared_transactions = 100
max_worker_processes = 32
END

	push @{ $self->{nodes} }, $node;
	$node->safe_psql('postgres', 'CREATE EXTENSION citus');
	return $node;
}

# One more worker, which Citus gives what the others have
sub add_worker
{
	my ($self) = @_;
	my $node = $self->start_node('worker_' . @{ $self->{nodes} });

	$self->coordinator->safe_psql('postgres', "SELECT citus_add_node('127.0.0.1', " . $node->port . ')');
	return $node;
}

sub coordinator { return $_[0]{nodes}[0]; }
sub nodes       { return @{ $_[0]{nodes} }; }

sub workers
{
	my (undef, @workers) = $_[0]->nodes;

	return @workers;
}

# Changes settings of all nodes.
sub configure
{
	my ($self, $settings) = @_;

	$_->configure($settings) for $self->nodes;
	return;
}

# Has no worker of the reaper run on any node, or lets them run.
sub turn_reaper
{
	my ($self, $value) = @_;

	$_->turn_reaper($value) for $self->nodes;
	return;
}

# What a query says on each node
sub on_each
{
	my ($self, $sql) = @_;

	return map { $_->safe_psql('postgres', $sql) } $self->nodes;
}

# A query as the coordinator answers it when no node hides anything
sub with_expired
{
	my ($sql) = @_;

	return "\\set QUIET on\nBEGIN; SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL ttl.show_expired = on; $sql; COMMIT";
}

# As in TtlNode, of a distributed table
sub stored
{
	my ($self, $table, $condition) = @_;

	return $self->coordinator->safe_psql('postgres', with_expired("SELECT count(*) FROM $table" . ($condition ? " WHERE $condition" : '')));
}

sub stored_are
{
	my ($self, $table, $number, $name, $condition) = @_;

	ok( $self->coordinator->poll_query_until(
			'postgres', with_expired("SELECT count(*) FROM $table" . ($condition ? " WHERE $condition" : '')), $number),
		$name);
	return;
}

# Each copy of a reference table will have so many rows, expired ones included.
sub copies_are
{
	my ($self, $table, $number, $name) = @_;
	local $ENV{PGOPTIONS} = '-c ttl.show_expired=on';

	ok(!(grep { !$_->poll_query_until('postgres', "SELECT count(*) FROM $table", $number) } $self->nodes), $name);
	return;
}

sub stop
{
	my ($self, $mode) = @_;

	$_->stop($mode) for reverse $self->nodes;
	return;
}

1;
