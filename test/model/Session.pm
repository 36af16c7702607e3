# Session.pm - a psql that runs in the background and may have to wait for a lock
#
# send() does not wait for the answer; answer() returns it once it is there: the results of the
# statements, in their order, each { state => SQLSTATE, rows => [[...], ...], error => text }.
# Beside them stands when the statements were sent and when the answer was complete, in
# microseconds since 1970: whatever time the server has used lies in between.
package model::Session;

use strict;
use warnings;

use IO::Handle;
use IO::Select;
use IPC::Open3;
use POSIX ();
use Time::HiRes ();

sub new
{
	my ($class, $node, $name, $options) = @_;
	my $self = bless { name => $name, buffer => '', results => [], left => 0 }, $class;

	local $ENV{PGOPTIONS} = $options // '';
	$self->{process} = open3($self->{in}, $self->{out}, undef,
		$node->installed_command('psql'), '-XAtq', '-F', '|', '-P', 'null=~', '-d', $node->connstr('postgres') . " application_name=model_$name");
	$self->{in}->autoflush(1);
	$self->{select} = IO::Select->new($self->{out});
	$self->{pid} = $self->run("\\set VERBOSITY verbose\nSET client_min_messages = error", 'SELECT pg_backend_pid()')->[1]{rows}[0][0];
	return $self;
}

sub microseconds
{
	my ($seconds, $rest) = Time::HiRes::gettimeofday();
	return $seconds * 1000000 + $rest;
}

sub send
{
	my ($self, @statements) = @_;

	$self->{results} = [ { rows => [] } ];
	$self->{left} = @statements;
	$self->{sent} = microseconds();
	print { $self->{in} } map { "$_;\n\\echo \@\@ :SQLSTATE\n" } @statements;
	return;
}

# True once the answer is complete; waits so many seconds for it.
sub answered
{
	my ($self, $seconds) = @_;
	my $until = Time::HiRes::time() + $seconds;

	while ($self->{left} > 0)
	{
		my $rest = $until - Time::HiRes::time();

		return 0 if !$self->{select}->can_read($rest > 0 ? $rest : 0);
		sysread($self->{out}, $self->{buffer}, 65536, length($self->{buffer})) or die "session $self->{name} has ended: $self->{buffer}";
		while ($self->{buffer} =~ s/^(.*)\n//)
		{
			my $line = $1;
			my $result = $self->{results}[-1];

			if ($line =~ /^\@\@ (\w+)$/)
			{
				$result->{state} = $1;
				push @{ $self->{results} }, { rows => [] } if --$self->{left} > 0;
			}
			elsif ($line =~ /^(?:ERROR|FATAL|PANIC):  / || defined $result->{error})
			{
				$result->{error} .= "$line\n";
			}
			else
			{
				push @{ $result->{rows} }, [ map { $_ eq '~' ? undef : $_ } split(/\|/, $line, -1) ];
			}
		}
		$self->{received} = microseconds() + 1 if $self->{left} == 0;
	}
	return 1;
}

# Sends and waits: for sessions that meet no lock.
sub run
{
	my ($self, @statements) = @_;

	$self->send(@statements);
	$self->answered(60) or die "session $self->{name} waits: $statements[0]";
	return $self->{results};
}

sub stop
{
	my ($self) = @_;

	close($self->{in});
	waitpid($self->{process}, 0);
	return;
}

1;
