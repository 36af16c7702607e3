# The official image of PostgreSQL with ttl in it, and loaded:
#
#   docker build --build-arg PG_MAJOR=17 -t postgres-ttl .
#   docker run -e POSTGRES_PASSWORD=... postgres-ttl
#
# The library is loaded by postgresql.conf of data directories that this image makes, whatever arguments follow; one that
# is there already needs the line.  CREATE EXTENSION ttl is left to you.
ARG PG_MAJOR=17

FROM postgres:$PG_MAJOR AS build
ARG PG_MAJOR
# headers of the image's own minor release: with later ones ttl may need functions that its server lacks
RUN apt-get update && \
    apt-get install -y --no-install-recommends gcc libc6-dev make "postgresql-server-dev-$PG_MAJOR=${PG_VERSION%%-*}-*" || \
    { echo "no headers of PostgreSQL $PG_VERSION are to be had any more: use --pull, for a newer image" >&2; exit 1; }
COPY . /usr/src/ttl
# what was built outside is for another PostgreSQL
RUN make -C /usr/src/ttl clean && \
    make -C /usr/src/ttl -j"$(nproc)" && \
    make -C /usr/src/ttl install DESTDIR=/installed

FROM postgres:$PG_MAJOR
COPY --from=build /installed /
RUN echo "shared_preload_libraries = 'ttl'" >> /usr/share/postgresql/postgresql.conf.sample
