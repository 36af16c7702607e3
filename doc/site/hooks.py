"""What GitHub's Markdown has and MkDocs's has not."""
import os
import posixpath
import re

from mkdocs.structure.nav import Link

# Links to what isn't a page go to the repository, if a workflow of GitHub's builds the site; else they are text.
REPOSITORY = '/'.join(os.environ[name] for name in ('GITHUB_SERVER_URL', 'GITHUB_REPOSITORY') if name in os.environ)


def on_page_markdown(markdown, page, config, files):
    here = posixpath.dirname(page.file.src_uri)

    def link(match):
        text, target = match.group(1), match.group(2)
        if ':' in target or target.startswith('#'):
            return match.group(0)
        path = posixpath.normpath(posixpath.join(here, target.split('#')[0]))
        # MkDocs sees no folder whose name begins with a dot
        if path.startswith('.github/'):
            return '[%s](%s)' % (text, target.replace('.github/', 'project/'))
        if files.get_file_from_path(path):
            return match.group(0)
        return '[%s](%s/tree/main/%s)' % (text, REPOSITORY, path) if REPOSITORY else text

    # the word after sql says where our tests run it
    markdown = re.sub(r'^```sql \w+$', '```sql', markdown, flags=re.M)
    parts = re.split(r'(^```.*?^```$)', markdown, flags=re.S | re.M)
    for i in range(0, len(parts), 2):
        # the line that names all pages: the site has a navigation
        parts[i] = re.sub(r'^\[README\]\([^)]*\) · .*\n', '', parts[i], flags=re.M)
        # the inside of <details> is Markdown
        parts[i] = parts[i].replace('<details>', '<details markdown="1">')
        parts[i] = re.sub(r'(?<!!)\[([^\]]*)\]\(([^)\s]+)\)', link, parts[i])
        # a list right below a paragraph
        parts[i] = re.sub(r'^((?!- |\d+\. |[|#> ]).+\n)(?=- |\d+\. )', r'\1\n', parts[i], flags=re.M)
    return ''.join(parts)


# Parts of the first page for which people look in the navigation
PARTS = {'Installation': 'installation', 'Removal': 'removal', 'Turning it off': 'turning-it-off', 'Limits': 'limits'}


def on_nav(nav, config, files):
    nav.items[1].children[:0] = [Link(title, 'index.html#' + part) for title, part in PARTS.items()]


def on_page_content(html, page, config, files):
    # a table without heads, and heads without words
    html = re.sub(r'<thead>\s*<tr>\s*(?:<th></th>\s*)+</tr>\s*</thead>', '', html)
    return html.replace('<th></th>', '<td></td>')


def on_post_page(output, page, config):
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
