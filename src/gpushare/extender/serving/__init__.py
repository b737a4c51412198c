"""Plain requests of schedulers, answered without a framework.

A scheduler asks twice for each pod, always in the same few lines of HTTP. To read those, and to write the answer, takes
a twentieth of the time that a general server needs for it. A request that differs in anything (another path, another
header, a body in chunks or one that is late) is not read here at all: its connection goes to aiohttp's server with
every byte that came, so that there is one answer to whatever is unusual or wrong, and it is aiohttp's.
"""
