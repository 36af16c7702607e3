// What scrolls can be reached by keys.
addEventListener('load', () => {
	for (const element of document.querySelectorAll('pre > code, .md-typeset__scrollwrap, .md-search__scrollwrap'))
		if (element.scrollWidth > element.clientWidth || element.matches('.md-search__scrollwrap')) element.tabIndex = 0;
});
