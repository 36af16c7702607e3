# make site: the pages as HTML.  Each page is there and in the navigation, with all of its tables and blocks of code, links and pictures lead
# somewhere, and the search knows what is on them.  In a browser no page is wider than a telephone, and pictures are drawn, by day and by night.
use strict;
use warnings;

use Cwd qw(realpath);
use File::Basename;
use FindBin;
use JSON::PP;

use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");
plan(skip_all => 'mkdocs-material is not installed') if `mkdocs build --help 2> /dev/null` !~ /\bmaterial\b/;

my $work = PostgreSQL::Test::Utils::tempdir();
my $html = "$work/site/html";
command_ok([ 'make', '-s', '-C', $top, 'PG_CONFIG=' . ($ENV{PG_CONFIG} || 'pg_config'), 'site', "SITE=$work/site" ], 'make site');
die 'no site' if !-e "$html/index.html";

sub pages
{
	my ($dir) = @_;
	return sort map { s{^\Q$dir\E/}{}r } map { chomp; $_ } `find $dir -name '*.html'`;
}

my @pages = grep { $_ ne '404.html' } pages($html);
my %text = map { $_ => slurp_file("$html/$_") } @pages;
my %ids = map { my $page = $_; $page => { map { $_ => 1 } $text{$page} =~ /\bid="([^"]*)"/g } } @pages;

#
# Pages
#

for my $source ('README.md', map { s{^\Q$top\E/}{}r } sort glob("$top/doc/*.md"))
{
	my $page = $source eq 'README.md' ? 'index.html' : $source =~ s/md$/html/r;
	my $markdown = slurp_file("$top/$source");
	my $blocks = () = $markdown =~ /^```.*?^```$/msg;
	$markdown =~ s/^```.*?^```$//msg;
	my ($tables, $items, $details) = map { my $what = $_; scalar(() = $markdown =~ /$what/g) } qr/^\|(?: -+ \|)+$/m, qr/^(?:- |\d+\. )/m, qr/^<details>$/m;
	my ($article) = ($text{$page} // '') =~ m{<article[^>]*>(.*)</article>}s;
	my $is = sub { my ($what) = @_; return scalar(() = ($article // '') =~ /$what/g) };

	ok($text{'index.html'} =~ /href="\Q$page\E"/ || $page eq 'index.html', "$page: in the navigation");
	is($is->(qr/<pre\b/), $blocks, "... $page: blocks of code");
	is($is->(qr/<table\b/), $tables, "... $page: tables");
	is($is->(qr/<li>/), $items, "... $page: items of lists");
	is($is->(qr/<details>/), $details, "... $page: details");
	my @left = grep { /```|\]\(|\*\*|^\| / } split(/\n/, ($article // '') =~ s{<(pre|code)\b.*?</\1>}{}gsr);
	is("@left", '', "... $page: nothing is left of Markdown");
}

like($text{'doc/recipes.html'}, qr/href="\.\.\/index\.html#$_"/, "$_: in the navigation") for 'installation', 'removal';
like($text{'index.html'}, qr/^ *ttl \d+\.\d+\.\d+$/m, 'the version');
unlike(join('', values %text), qr{<th></th>}, 'no head is empty');

#
# Links
#

for my $page (@pages)
{
	my @broken;
	for my $link ($text{$page} =~ /\b(?:href|src)="([^"]*)"/g)
	{
		next if $link =~ m{^(?:\w+:|//)};
		my ($file, $id) = $link =~ /^([^#]*)(?:#(.*))?$/;
		$file = $file eq '' ? $page : dirname($page) . "/$file" =~ s{\?.*}{}r;
		$file .= 'index.html' if $file =~ m{(^|/)$};
		1 while $file =~ s{(^|/)(?!\.\./)[^/]+/\.\./}{$1};
		$file =~ s{(^|/)(?:\./)+}{$1}g;
		$file = 'index.html' if $file eq '.';
		push @broken, $link if !-e "$html/$file" || defined $id && $id ne '' && $id !~ /^__/ && $ids{$file} && !$ids{$file}{$id};
	}
	is(join(' ', @broken), '', "$page: links lead somewhere");
	my @fetched = $text{$page} =~ m{<(?:link\b[^>]*\bhref|(?:script|img|iframe)\b[^>]*\bsrc)="(\w+://[^"]*)"}g;
	is("@fetched", '', '... and nothing is fetched from others');
}

#
# Search
#

my $index = decode_json(slurp_file("$html/search/search_index.json"));
for my $word ('Installation', 'Removal', 'ttl_unit', 'ttl.pause', 'if_not_exists', 'CloudNativePG', 'eviction')
{
	ok((grep { "$_->{title} $_->{text}" =~ /\Q$word\E/i } @{ $index->{docs} }), "search: $word");
}

#
# A browser
#

SKIP:
{
	my $chromium = (grep { system("$_ --version > /dev/null 2>&1") == 0 } 'chromium', 'chromium-browser', 'google-chrome')[0];
	skip 'no chromium is installed', 3 if !defined $chromium;

	# axe-core, if it is there: npm install axe-core
	my $axe = $ENV{AXE} // '';
	note('AXE names no axe.min.js: accessibility is not tested') if !-e $axe;
	system('cp', $axe, "$html/axe.js") == 0 or die if -e $axe;
	my $widths = encode_json(-e $axe ? [ 360, 1280 ] : [360]);

	open(my $look, '>', "$html/look.html") or die;
	print $look '<!doctype html><body><script>const pages = ', encode_json(\@pages), ", widths = $widths, said = [];", <<'END';
async function look(page, pixels) {
	const frame = document.createElement('iframe');
	frame.style = `width: ${pixels}px; height: 800px`;
	const loaded = new Promise((done) => { frame.onload = done; });
	frame.src = page;
	document.body.append(frame);
	await loaded;
	const its = frame.contentDocument, width = its.documentElement.scrollWidth;
	const pictures = [...its.images].filter((i) => !i.complete || !i.naturalWidth).map((i) => i.src);
	if (width > pixels) said.push(`${page}: ${width} pixels wide`);
	if (pictures.length) said.push(`${page}: no picture ${pictures}`);
	if (widths.length > 1) {
		const script = its.createElement('script');
		const ready = new Promise((done) => { script.onload = done; });
		script.src = '/axe.js';
		its.head.append(script);
		await ready;
		for (const found of (await frame.contentWindow.axe.run()).violations)
			said.push(`${page}, ${pixels} pixels: ${found.id} ${found.nodes.length} ${found.nodes[0].target} ${found.nodes[0].failureSummary.replace(/\s+/g, ' ')}`);
	}
	const scheme = its.body.getAttribute('data-md-color-scheme'), background = frame.contentWindow.getComputedStyle(its.body).backgroundColor;
	frame.remove();
	return `${scheme} ${background}`;
}
(async () => {
	const schemes = new Set();
	for (const page of pages) for (const pixels of widths) schemes.add(await look(page, pixels));
	await fetch('said', { method: 'POST', body: [...said, ...schemes].join('; ') });
})();
</script>
END
	close $look;

	# Files have no origin, which frames need.  The server prints its port, and what is posted to it.
	my $pid = open(my $server, '-|', 'python3', '-u', '-c', <<'END', $html) or die;
import functools, http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_POST(self):
        print(self.rfile.read(int(self.headers['Content-Length'])).decode())
        self.send_response(204)
        self.end_headers()
    def log_message(self, *what):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Handler, directory=sys.argv[1]))
print(server.server_port)
server.serve_forever()
END
	chomp(my $port = <$server>);
	for my $scheme ([ day => 1, 'default' ], [ night => 0, 'slate' ])
	{
		my ($when, $setting, $expected) = @$scheme;
		my $said = 'it does not answer';
		my $browser = fork // die;
		if (!$browser)
		{
			open(STDOUT, '>', "$work/$when.log");
			open(STDERR, '>&', \*STDOUT);
			exec $chromium, qw(--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-port=0), "--user-data-dir=$work/$when",
			  "--blink-settings=preferredColorScheme=$setting", "http://127.0.0.1:$port/look.html";
		}
		eval {
			local $SIG{ALRM} = sub { die "late\n" };
			alarm 3 * $PostgreSQL::Test::Utils::timeout_default;
			my $line = <$server>;
			alarm 0;
			chomp($said = $line);
		};
		kill 'TERM', $browser;
		waitpid $browser, 0;
		like($said, qr/\A$expected rgb[^;]*\z/, "a browser, by $when");
	}
	kill 'TERM', $pid;
	close $server;

	# as a file
	my ($dom) = run_command([ $chromium, qw(--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --virtual-time-budget=5000 --dump-dom), "--user-data-dir=$work/file", "file://$html/index.html" ]);
	like($dom, qr{<p id="file">.*python3 -m http\.server}, 'opened as a file it says how it is served');
}

done_testing();
