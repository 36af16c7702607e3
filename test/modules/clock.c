/*
 * clock.c
 *	  A clock that may be set, for a server that runs with LD_PRELOAD: it is ahead of the
 *	  system's by the seconds, an int64, in the file $TEST_CLOCK.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static volatile int64_t *ahead = NULL;
	struct timespec now;

	if (ahead == NULL)
	{
		int			fd = open(getenv("TEST_CLOCK"), O_RDONLY);

		ahead = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
		if (fd < 0 || ahead == MAP_FAILED)
			abort();
	}
	clock_gettime(CLOCK_REALTIME, &now);
	tv->tv_sec = now.tv_sec + *ahead;
	tv->tv_usec = now.tv_nsec / 1000;
	return 0;
}

/* pg_control's time */
time_t
time(time_t *t)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	if (t != NULL)
		*t = tv.tv_sec;
	return tv.tv_sec;
}
