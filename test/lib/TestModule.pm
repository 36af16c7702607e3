# TestModule.pm - libraries that tests compile from test/modules
package TestModule;

use strict;
use warnings;

use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

# The path of the library that test/modules/$name.c makes.  Ends the test where nothing can be compiled; what
# doesn't compile is an error.
sub build
{
	my ($name)    = @_;
	my $source    = "$FindBin::RealBin/../modules/$name.c";
	my $library   = PostgreSQL::Test::Utils::tempdir() . "/$name.so";
	my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
	chomp(my $include = `$pg_config --includedir-server`);

	plan(skip_all => 'there is no C compiler') if system('cc --version > /dev/null 2>&1') != 0;
	plan(skip_all => "the server's headers are not installed")
	  if slurp_file($source) =~ /^#include "postgres\.h"/m && !-e "$include/postgres.h";
	system('cc', '-shared', '-fPIC', '-I', $include, '-I', "$FindBin::RealBin/../../src", '-o', $library, $source) == 0
	  or die "$source does not compile";
	return $library;
}

1;
