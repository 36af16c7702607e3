// What scrolls can be reached by keys.
addEventListener('load', () => {
	for (const element of document.querySelectorAll('pre > code, .md-typeset__scrollwrap, .md-search__scrollwrap'))
		if (element.scrollWidth > element.clientWidth || element.matches('.md-search__scrollwrap')) element.tabIndex = 0;
});

// A browser reads no other file for a page that is a file itself, so the search has no index.
if (location.protocol === 'file:') addEventListener('load', () => {
	const note = document.createElement('p'), command = document.createElement('code');
	const root = new URL(JSON.parse(document.getElementById('__config').textContent).base + '/', location);
	note.id = 'file';
	command.textContent = `python3 -m http.server -b 127.0.0.1 -d ${decodeURIComponent(root.pathname)}`;
	note.append('Opened as files, these pages have no search. To have it, serve them by ', command, ' and open http://localhost:8000/.');
	document.querySelector('article').prepend(note);
});
