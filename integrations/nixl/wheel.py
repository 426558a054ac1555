"""The NIXL wheel that is installed: where it is, and agents made with it."""

import importlib.metadata
import importlib.util
import json
import pathlib
import subprocess
import sys
import types

PACKAGES = ("nixl_cu13", "nixl_cu12")


def package():
    """Folder of the wheel's package, without importing it. None: no wheel is installed."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None:
            return pathlib.Path(spec.origin).parent
    return None


def version():
    """Of the wheel's package, as its metadata says."""
    return importlib.metadata.version(package().name.replace("_", "-"))


def libraries():
    """Folders of libnixl and of what the stock plugins need."""
    found = package()
    return [found.parent / f".{found.name}.mesonpy.libs", found.parent / f"{found.name}.libs"]


def plugins():
    """Folder in which libnixl of the wheel looks for its plugins."""
    return libraries()[0] / "plugins"


def load():
    """The package's `_api` module. Wheels before 1.4 import torch only to recognise its tensors: a stand-in does."""
    found = package()
    if found is None:
        raise ImportError("no NIXL wheel (" + " or ".join(PACKAGES) + ")")
    if "torch" not in sys.modules and importlib.util.find_spec("torch") is None:
        sys.modules["torch"] = types.ModuleType("torch")
        sys.modules["torch"].Tensor = type("Tensor", (), {})
    return importlib.import_module(f"{found.name}._api")


def add_backend(made, backend, parameters=None, gpu=0):
    """Gives an agent this back-end, for this GPU where the back-end wants to know."""
    takes_gpu = gpu != 0 and "gpu" in made.get_plugin_params(backend)
    made.create_backend(backend, ({"gpu": str(gpu)} if takes_gpu else {}) | (parameters or {}))


def agent(api, name, backend, parameters=None, gpu=0, progress_thread=True):
    """An agent with this back-end alone. NIXL's progress thread is the default of its Python interface, and off in nixlbench."""
    made = api.nixl_agent(name, api.nixl_agent_config(enable_prog_thread=progress_thread, backends=[]))
    add_backend(made, backend, parameters, gpu)
    return made


def text(word):
    """Names and messages are str or bytes, as the release likes it."""
    return word if isinstance(word, str) else word.decode()


def serve(end):
    """Answers every line on the standard input, a JSON list [WORD, arguments...], with what that method of `end` returns: a line
    "> JSON", marked because NIXL logs to the standard output too."""
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        print(">", json.dumps(getattr(end, word)(*arguments)), flush=True)


class Process:
    """A process that serves: each of its methods is one here."""

    def __init__(self, command, environment=None, python=sys.executable):
        self.process = subprocess.Popen(
            [python, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def __getattr__(self, word):
        return lambda *arguments: self.ask(word, *arguments)

    def tell(self, *line):
        """Lets it begin, and does not wait for the answer."""
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def ask(self, *line):
        self.tell(*line)
        for answer in self.process.stdout:
            if answer.startswith("> "):
                return json.loads(answer[2:])
        raise RuntimeError(f"the process of an agent has ended with code {self.process.wait()}")

    def kill(self):
        """As the kernel does when there is no memory left."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        """Its exit code; None: it had to be killed."""
        self.process.stdin.close()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None
        finally:
            self.process.stdout.close()
