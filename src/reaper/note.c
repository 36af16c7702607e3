/*-------------------------------------------------------------------------
 *
 * note.c
 *	  Small files in the data directory that survive crashes: a time, and a backup label.
 *
 * A note is a line with the time, then the label as PostgreSQL has written it.  It is written beside the
 * old one and renamed, so there is the old one or the new one, whatever happens.  Who writes a note
 * sees to it that nobody else does so at the same time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "reaper/reaper_internal.h"
#include "storage/fd.h"

/* True if there is such a file, a note or another. */
bool
ttl_note_exists(const char *path)
{
	if (access(path, F_OK) == 0)
		return true;
	if (errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not access file \"%s\": %m", path)));
	return false;
}

/* Reads the start of any file; false if there is none. */
bool
ttl_note_read_text(const char *path, char *text)
{
	FILE	   *file = AllocateFile(path, "r");
	size_t		length;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", path)));
		return false;
	}
	length = fread(text, 1, TTL_LABEL_LENGTH - 1, file);
	text[length] = '\0';
	if (ferror(file))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	FreeFile(file);
	return true;
}

/* Reads a note; false if there is no such file. */
bool
ttl_note_read(const char *path, TtlNote *note)
{
	char		text[TTL_LABEL_LENGTH];
	char	   *end;

	if (!ttl_note_read_text(path, text))
		return false;
	note->at = strtoi64(text, &end, 10);
	if (*end == '\n')
		end++;
	strlcpy(note->label, end, sizeof(note->label));
	return true;
}

/* Returns false, with errno, if it can't be written.  It is closed in any case. */
static bool
write_file(const char *path, const TtlNote *note)
{
	FILE	   *file = AllocateFile(path, "w");
	int			error = 0;

	if (file == NULL)
		return false;
	if (fprintf(file, INT64_FORMAT "\n%s", note->at, note->label) < 0)
		error = errno;
	if (FreeFile(file) != 0 && error == 0)
		error = errno;
	errno = error;
	return error == 0;
}

/* Replaces a note durably.  'elevel' is of errors. */
void
ttl_note_write(const char *path, const TtlNote *note, int elevel)
{
	char		temporary[MAXPGPATH];

	/* durable_rename() flushes the new file first */
	snprintf(temporary, sizeof(temporary), "%s.tmp", path);
	if (write_file(temporary, note))
		(void) durable_rename(temporary, path, elevel);
	else
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", temporary)));
}
