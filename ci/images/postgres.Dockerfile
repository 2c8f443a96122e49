# Debian's PostgreSQL under the conventions of the public postgres image that docker-compose.yml uses.
ARG BASE
FROM ${BASE}
ARG PG_BIN
ENV PATH=${PG_BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PGDATA=/var/lib/postgresql/data
COPY postgres-entrypoint /usr/local/bin/docker-entrypoint.sh
RUN chmod 1777 /var/lib/postgresql && install -d -o postgres -g postgres -m 2775 /run/postgresql
USER postgres
# PostgreSQL's fast shutdown: it does not wait for sessions that stay open.
STOPSIGNAL SIGINT
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
