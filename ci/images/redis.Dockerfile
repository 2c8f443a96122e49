# Debian's Redis under the conventions of the public redis image: command `redis-server ...`, data in /data, not root.
ARG BASE
FROM ${BASE}
RUN install -d -o redis -g redis /data
USER redis
WORKDIR /data
CMD ["redis-server"]
