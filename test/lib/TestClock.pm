# TestClock.pm - a clock of servers that is ahead of the system's, or behind it, by as many seconds as a test says
package TestClock;

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use TestModule;

# Ends the test where that is not possible.
sub new
{
	my ($class) = @_;

	plan(skip_all => 'LD_PRELOAD is known to work on Linux') if $^O ne 'linux';
	my $self = bless
	  { library => TestModule::build('clock'), file => PostgreSQL::Test::Utils::tempdir() . '/clock' }, $class;
	$self->set(0);
	return $self;
}

# Sets the clock so many seconds ahead.
sub set
{
	my ($self, $ahead) = @_;
	my $file;

	open($file, '+<', $self->{file}) or open($file, '>', $self->{file}) or die $!;
	print $file pack('q', $ahead);
	close $file;
	return;
}

# Servers that this starts have the clock.
sub while_starting
{
	my ($self, $start) = @_;
	local $ENV{LD_PRELOAD} = $self->{library};
	local $ENV{TEST_CLOCK} = $self->{file};

	return $start->();
}

1;
