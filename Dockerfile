# The service, with PostgreSQL or with the embedded database in /data. The root file system may be read-only.
# A release names the image of Node by its digest.
ARG NODE_IMAGE=node:24-slim
FROM $NODE_IMAGE AS build
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY src src
# The console calls operations with the runtime of this package.
COPY packages/client packages/client
RUN npm run build

FROM $NODE_IMAGE AS dependencies
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts

FROM $NODE_IMAGE
WORKDIR /app
RUN mkdir /data && chown node:node /data
COPY --from=dependencies /app/node_modules node_modules
COPY --from=build /src/dist dist
COPY package.json LICENSE ./
# Beyond loopback, the service starts only with ADMIN_TOKEN.
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 DATA_DIR=/data
# The user "node" by number, so that an orchestrator sees that it is not root.
USER 1000:1000
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.PORT + '/healthz').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
# SIGUSR1 would open a debugger.
ENTRYPOINT ["node", "--disable-sigusr1", "dist/cli/main.js"]
CMD ["serve"]
