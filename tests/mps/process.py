"""`gpushare mps` as a process, with folders of its own: `python -m tests.mps.process KUBECONFIG FOLDER [restore|idle]`.

All but the command line is what runs on a real node; the driver and the control program are stand-ins.
"""

import asyncio
import os
import sys
from pathlib import Path

from gpushare.kube.auth import login
from gpushare.mps import app, supervisor
from gpushare.mps.files import Places
from gpushare.obs import errors, log


def main(kubeconfig: str, folder: str, *words: str) -> int:
    log.setup("info")
    supervisor.LOOK_SECONDS = 0.2  # type: ignore[misc]
    places = Places(Path(folder, "pipe"), Path(folder, "state"))
    try:
        if words == ("restore",):
            asyncio.run(app.restore(places))
        else:
            access = login.load(kubeconfig, None, os.environ, Path.home())
            config = app.Config("gpu-a", port=0, places=places, path=str(Path(folder, "bin")))
            config = config._replace(fail_on_init_error=words != ("idle",))
            asyncio.run(app.run(config, access))
    except errors.UserError as error:
        print(error.render(), file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
