"""Start a guest: `python bootstrap.py ROLE TREE ENTRY [ORIGINAL]`, run as a script from its own folder.

Connects the private channel before any code of the target is loaded, gives the package a name no target has,
and leaves `sys.path` as `python ENTRY` would have it, less our own distribution, and with TREE wherever it names
ORIGINAL, the user's own copy of the target. Does not run with nobody to answer to: where there is no channel, the
requests are in the file that RATCHET_REQUESTS names.
"""

import sys

AT_START = frozenset(sys.modules)  # what every Python has loaded before it looks into the folder of the entry

import glob  # noqa: E402
import importlib  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import os  # noqa: E402

NAME = "_ratchet_guest"
OURS = ("agent", "evals", "sandbox", "skills", "tools")


class _WithoutOurs:
    """Finds modules with the names of our packages as if our distribution were not installed.

    An installed `tools` would otherwise stand in for a target's own folder `tools/` without an `__init__.py`.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or name not in OURS:
            return None
        places = [
            p for p in sys.path if not glob.glob(os.path.join(glob.escape(p or "."), "ratchet_agent-*.dist-info"))
        ]
        spec = importlib.machinery.PathFinder.find_spec(name, places, target)
        if spec is None:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
        return spec


def _load_package():
    here = os.path.dirname(os.path.abspath(__file__))
    spec = importlib.util.spec_from_file_location(
        NAME, os.path.join(here, "__init__.py"), submodule_search_locations=[here]
    )
    package = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = package
    spec.loader.exec_module(package)


def _away_from(original, tree):
    """An editable install of the target leads to the user's own files, which never change: lead it to the tree.

    Such an install is a line of `sys.path`, or a finder of setuptools, whose module has a `MAPPING` of names to paths.
    """

    def moved(path):
        inside = path == original or path.startswith(original + os.sep)
        return tree + path[len(original) :] if inside else path

    sys.path[:] = [moved(p) for p in sys.path]
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith("__editable__") else None
        if isinstance(mapping, dict):
            mapping.update({key: moved(path) for key, path in mapping.items()})


def _give_way(folder):
    """Forget what we loaded that the target has under the same name, such as `profile`: it is to get its own.

    Who has loaded the other one already keeps it.
    """
    for name in {n.partition(".")[0] for n in sys.modules} - AT_START - {NAME}:
        here = os.path.join(folder, name)
        if os.path.isfile(here + ".py") or os.path.isfile(os.path.join(here, "__init__.py")):
            for loaded in [n for n in sys.modules if n == name or n.startswith(name + ".")]:
                del sys.modules[loaded]


def _channel():
    address, requests = os.environ.pop("RATCHET_CHANNEL", None), os.environ.pop("RATCHET_REQUESTS", None)
    if requests is not None:
        return importlib.import_module(NAME + ".playback").Playback(requests)
    return importlib.import_module(NAME + ".wire").connect(address)


def _why_not():
    """Why nothing can be run by this interpreter; empty when it can."""
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return sys.executable + " has no PyTorch"
    return ""


def _short_sockets():
    """Let processes of the target find each other: multiprocessing puts a socket into TMPDIR, and the path of one has
    107 bytes at most (unix(7)).
    """
    tempfile, util = importlib.import_module("tempfile"), importlib.import_module("multiprocessing.util")
    if len(os.fsencode(tempfile.gettempdir())) + len("/pymp-12345678/listener-12345678") <= 107:
        return

    def get_temp_dir():
        config = util.process.current_process()._config
        if config.get("tempdir") is None:
            config["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
            remove = importlib.import_module("shutil").rmtree
            util.Finalize(None, remove, args=(config["tempdir"], True), exitpriority=-100)
        return config["tempdir"]

    util.get_temp_dir = get_temp_dir


def main():
    role, tree, entry = sys.argv[1:4]
    original = sys.argv[4] if len(sys.argv) > 4 else ""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or os.curdir) != here]
    _load_package()
    channel, why_not = _channel(), _why_not()
    if why_not:
        asked = channel.receive()
        error = {"kind": "no_torch", "message": why_not, "where": ""}
        channel.send({"nonce": asked["nonce"], "error": error})
        return
    _short_sockets()
    serve = importlib.import_module(NAME + ".serve")
    role_class = serve.role_class(role)
    entry_path = os.path.join(tree, entry)
    sys.argv = [entry_path]
    sys.path.insert(0, os.path.dirname(entry_path))
    if original:
        _away_from(original, tree)
    sys.meta_path.insert(0, _WithoutOurs)
    _give_way(os.path.dirname(entry_path))
    serve.serve(channel, role_class(tree, entry))


if __name__ == "__main__":
    main()
