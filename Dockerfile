# docker build -t gpushare:0.1.0 .          (without docker: make image)
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml requirements.lock LICENSE ./
COPY tools/runtime_lock.py tools/
# Only what runs, by the lock's hashes, from wheels: nothing is compiled. Hatchling builds gpushare and stays behind.
RUN python -m venv --without-pip /opt/gpushare \
 && python tools/runtime_lock.py > runtime.txt \
 && python tools/runtime_lock.py hatchling > build.txt \
 && pip install --no-cache-dir --only-binary=:all: --require-hashes -r build.txt \
 && pip --python /opt/gpushare install --no-cache-dir --only-binary=:all: --require-hashes -r runtime.txt
COPY src src
COPY deploy deploy
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /tmp . \
 && pip --python /opt/gpushare install --no-cache-dir --no-deps /tmp/gpushare-*.whl

FROM python:3.12-slim
COPY --from=build /opt/gpushare /opt/gpushare
ENV PATH=/opt/gpushare/bin:/usr/local/bin:/usr/bin:/bin HOME=/ PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["gpushare"]
