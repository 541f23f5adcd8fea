"""deploy/: what its files say of the server, and of each other, is true. No container is built here."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import typer

from elmokit.cli import app
from elmokit.model.kernels.library import available_variants

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
yaml = pytest.importorskip("yaml", reason="PyYAML comes with pre-commit, of the extra dev")


def instructions(text: str) -> list[tuple[str, str]]:
    """Of a Dockerfile: (name, the rest), comments left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.split("\n")) if name]


class Unit(RawConfigParser):
    """A systemd unit: names are as they are written, and the last of several counts."""

    def __init__(self, text: str) -> None:
        super().__init__(strict=False, interpolation=None)
        self.optionxform = str  # type: ignore[assignment]
        self.read_string(text)


DOCKERFILE = instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))
NAMES = [name for name, _ in DOCKERFILE]
FINAL = DOCKERFILE[len(NAMES) - 1 - NAMES[::-1].index("FROM") :]
UNIT = Unit((DEPLOY / "elmo-serve.service").read_text(encoding="utf-8"))["Service"]
RESOURCES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8")))
BY_KIND = {each["kind"]: each for each in RESOURCES if each}
POD = BY_KIND["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
NGINX = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))


def only(name: str, of: list[tuple[str, str]] = FINAL) -> str:
    found = [rest for each, rest in of if each == name]
    assert len(found) == 1, (name, found)
    return found[0]


def image_command() -> list[str]:
    return [*json.loads(only("ENTRYPOINT")), *json.loads(only("CMD"))]


def unit_command() -> list[str]:
    own = dict(pair.split("=", 1) for pair in UNIT["Environment"].split())
    return shlex.split(re.sub(r"\$\{(\w+)\}", lambda found: own[found[1]], UNIT["ExecStart"]))


def pod_command() -> list[str]:
    cores = CONTAINER["resources"]["limits"]["cpu"]
    arguments = [text.replace("$(OMP_NUM_THREADS)", cores) for text in CONTAINER["args"]]
    return [*json.loads(only("ENTRYPOINT")), *arguments]


def documented_commands() -> list[list[str]]:
    """`elmo serve` in comments, and what comments give to `docker run` of the image."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in DEPLOY.iterdir()}
    plain = [
        shlex.split(each) for each in re.findall(r"^# +(elmo serve .+?)(?:  .*)?$", texts["nginx.conf"], re.M)
    ]
    docker = re.findall(r"elmo-serve:0\.1\.0 (\S+ --[^`\n]+)", texts["Dockerfile"])
    assert len(plain) == 2
    assert len(docker) == 2
    return [*plain, *(["elmo", "serve", *each.split()] for each in docker)]


def parsed(command: list[str]) -> dict[str, object]:
    """The parameters that `elmo serve` would have: an unknown option or a value of a wrong kind is an error."""
    program, name, *arguments = command
    assert Path(program).name == "elmo"
    serve = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return serve.make_context(name, arguments).params


COMMANDS = {"image": image_command, "unit": unit_command, "pod": pod_command}


@pytest.fixture(autouse=True)
def no_model_of_the_environment(monkeypatch):
    monkeypatch.delenv("ELMO_MODEL", raising=False)


@pytest.fixture(scope="module")
def service():
    """The real one, of a model that is there already."""
    for module in ("fastapi", "prometheus_client", "orjson"):
        pytest.importorskip(module, reason="the extra serve is not installed")
    import elmokit.serve
    from helpers.models import make_elmo

    return elmokit.serve.app({"tiny": make_elmo()})


def limits():
    from elmokit.serve.limits import Limits

    return Limits()


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|)", text).groups()
    return int(number) * {"ms": 0.001, "s": 1, "": 1, "m": 60}[unit]


def directive(name: str) -> str:
    """Of nginx.conf: the value of what is there once."""
    found = re.findall(rf"^\s*{name}\s+([^;]+);", NGINX, re.MULTILINE)
    assert len(found) == 1, (name, found)
    return found[0]


def test_the_parser_of_dockerfiles():
    text = '# a\nFROM x AS y\n\nRUN one \\\n    # between\n    && two\nCMD ["a", \\\n "b"]\n'
    assert instructions(text) == [("FROM", "x AS y"), ("RUN", "one  && two"), ("CMD", '["a",  "b"]')]


# The command


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_one_that_elmo_serve_understands(name):
    assert parsed(COMMANDS[name]())["models"] == ["en-small"]


def test_the_commands_in_comments_are_understood_too():
    ports = [parsed(each)["port"] for each in documented_commands()]
    assert ports == [8001, 8002, 8000, 8000]


def test_a_command_that_is_not_understood_is_noticed():
    with pytest.raises(Exception, match="--prot"):
        parsed(["elmo", "serve", "en-small", "--prot", "8000"])


def test_in_containers_it_listens_to_all_and_else_to_this_machine():
    assert [parsed(make())["host"] for make in COMMANDS.values()] == ["0.0.0.0", "127.0.0.1", "0.0.0.0"]


def test_the_key_comes_from_the_environment_never_from_a_command_line():
    for make in COMMANDS.values():
        assert not parsed(make())["api_key"]
    (key,) = (each for each in CONTAINER["env"] if each["name"] == "ELMO_API_KEY")
    assert "secretKeyRef" in key["valueFrom"]
    assert not key["valueFrom"]["secretKeyRef"].get("optional")
    assert not UNIT["EnvironmentFile"].startswith("-")


def test_threads_are_the_limit_of_cores():
    (threads,) = (each for each in CONTAINER["env"] if each["name"] == "OMP_NUM_THREADS")
    assert threads["valueFrom"]["resourceFieldRef"]["resource"] == "limits.cpu"
    assert parsed(pod_command())["threads"] == int(CONTAINER["resources"]["limits"]["cpu"])
    assert [parsed(each)["threads"] for each in documented_commands()[:2]] == [1, 1]


# The image


def test_what_the_dockerfile_copies_is_in_the_repository_and_not_ignored():
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    copied = [
        source
        for name, rest in DOCKERFILE
        if name in ("COPY", "ADD") and "--from" not in rest
        for source in rest.split()[:-1]
    ]
    assert copied
    assert rules[0] == "*"
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in rules, source
    for unwanted in (
        "src/elmokit/model/kernels/_native.abi3.so",
        "src/elmokit/__pycache__",
        "src/elmokit.egg-info",
    ):
        assert any(fnmatch.fnmatch(unwanted, rule) for rule in rules[-4:]), unwanted
    for secret in (".git", ".venv", ".env", "deploy"):
        assert f"!{secret}" not in rules


def test_what_the_build_needs_is_copied():
    """pyproject.toml names files; setup.py reads others."""
    copied = " ".join(rest for name, rest in DOCKERFILE if name == "COPY").split()
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "constraints.txt"} <= set(copied)
    assert re.search(r"^torch==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_final_stage_installs_nothing_and_runs_as_a_number_that_is_not_root():
    assert NAMES.count("FROM") == 2
    assert not [rest for name, rest in FINAL if name in ("RUN", "ADD")]  # so there is no compiler either
    assert all("--from=builder" in rest for name, rest in FINAL if name == "COPY")
    user, group = map(int, only("USER").split(":"))
    assert user > 0
    assert group > 0
    assert (POD["securityContext"]["runAsUser"], POD["securityContext"]["runAsGroup"]) == (user, group)
    order = [name for name, _ in FINAL]
    assert order.index("USER") > max(place for place, name in enumerate(order) if name == "COPY")
    assert order.index("USER") < order.index("ENTRYPOINT")


def test_the_builder_checks_that_kernels_were_compiled():
    (line,) = (rest for name, rest in DOCKERFILE if name == "RUN" and "kernels.variant" in rest)
    _, _, code = shlex.split(line)
    cases = {"torch": 1} | ({"portable": 0} if available_variants() else {})
    for kernels, expected in cases.items():
        environment = {**os.environ, "ELMOKIT_KERNELS": kernels}
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=environment)
        assert done.returncode == expected


def test_the_image_stops_by_the_signal_that_drains():
    assert only("STOPSIGNAL") == UNIT["KillSignal"] == "SIGTERM"
    for name in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(only(name)), list)


@pytest.mark.parametrize(("status", "expected"), [(200, 0), (503, 1)])
def test_the_healthcheck_asks_the_server_past_any_proxy(service, status, expected, monkeypatch):
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    program, option, code = json.loads(only("HEALTHCHECK").partition(" CMD ")[2])
    assert (program, option) == ("python", "-c")
    port = parsed(image_command())["port"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = code.replace(f"127.0.0.1:{port}/", f"127.0.0.1:{server.server_port}/")
        assert here != code
        done = subprocess.run([sys.executable, "-c", here], check=False, capture_output=True, timeout=60)
        server.shutdown()
    assert done.returncode == expected
    assert asked == ["/healthz"]
    assert "/healthz" in paths(service)


# Ports, paths and times


def paths(application) -> set[str]:
    return {*application.openapi()["paths"]}


def test_ports_agree():
    port = parsed(image_command())["port"]
    assert int(only("EXPOSE")) == port
    assert [parsed(make())["port"] for make in COMMANDS.values()] == [port] * 3
    (ports,) = CONTAINER["ports"]
    (service_port,) = BY_KIND["Service"]["spec"]["ports"]
    annotations = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert ports["containerPort"] == service_port["port"] == int(annotations["prometheus.io/port"]) == port
    assert service_port["targetPort"] == ports["name"]
    upstream = re.findall(r"^\s*server (127\.0\.0\.1:\d+)", NGINX, re.MULTILINE)
    assert upstream == [f"127.0.0.1:{parsed(each)['port']}" for each in documented_commands()[:2]]
    (static,) = PROMETHEUS["scrape_configs"][0]["static_configs"]
    assert static["targets"] == upstream
    text = (DEPLOY / "elmo-serve.service").read_text(encoding="utf-8")
    assert [f"127.0.0.1:{each}" for each in re.findall(r"elmo-serve@(\d+)", text)] == upstream


def test_probes_and_scrapes_ask_for_what_there_is(service):
    there = paths(service)
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {each["path"] for each in probes.values()} <= there
    assert {each["port"] for each in probes.values()} == {CONTAINER["ports"][0]["name"]}
    annotations = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/path"] in there
    assert PROMETHEUS["scrape_configs"][0]["metrics_path"] in there
    closed = re.findall(r"location = (\S+) \{ return 404; \}", NGINX)
    assert set(closed) == {"/metrics", "/readyz"}
    assert set(closed) <= there


def test_probes_need_no_key():
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from elmokit.serve.gate import OPEN

    assert {CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")} <= OPEN


def test_nobody_kills_a_server_that_drains():
    assert parsed(unit_command())["grace"] < float(UNIT["TimeoutStopSec"])
    sleep, pause = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert sleep == "sleep"
    assert int(pause) + parsed(pod_command())["grace"] < POD["terminationGracePeriodSeconds"]
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert parsed(image_command())["grace"] < int(re.search(r"--stop-timeout (\d+)", text)[1])


def test_the_limits_of_nginx_are_those_of_the_server():
    own = limits()
    assert int(directive("client_max_body_size").removesuffix("m")) << 20 == own.body
    assert seconds(directive("proxy_read_timeout")) > own.timeout
    assert seconds(directive("proxy_next_upstream_timeout")) < own.timeout
    assert seconds(directive("keepalive_timeout")) < max(5, round(own.read))  # server.py: timeout_keep_alive
    assert int(UNIT["LimitNOFILE"]) > own.connections


def test_nginx_passes_the_ids_that_the_server_takes():
    pytest.importorskip("starlette", reason="the extra serve is not installed")
    from elmokit.serve.gate import REQUEST_ID

    (pattern,) = re.findall(r'"~\^(.+)\$" \$http_x_request_id;', NGINX)
    assert pattern.encode() == REQUEST_ID.pattern
    assert "proxy_set_header X-Request-Id $elmo_request_id;" in NGINX


# The rest of Kubernetes, and Prometheus


def test_kubernetes_names_and_labels_agree():
    assert sorted(BY_KIND) == ["Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service"]
    deployment = BY_KIND["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert BY_KIND["Service"]["spec"]["selector"] == labels
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    target = BY_KIND["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]
    assert "elmo-serve;true" in [each.get("regex") for each in PROMETHEUS["scrape_configs"][1]["relabel_configs"]]
    assert labels == {"app.kubernetes.io/name": "elmo-serve"}


def test_pods_may_do_little():
    own = CONTAINER["securityContext"]
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert own["readOnlyRootFilesystem"] is True
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert dict(each.split("=", 1) for each in only("ENV", FINAL[-8:]).split())["HOME"] == "/tmp"
    assert [each["mountPath"] for each in CONTAINER["volumeMounts"]] == ["/tmp"]


def test_alerts_ask_for_metrics_that_there_are(service):
    names = set()
    for family in service.state.service.metrics.registry.collect():
        names |= {sample.name for sample in family.samples} | {family.name}
        if family.type == "counter":
            names.add(f"{family.name}_total")
    (group,) = ALERTS["groups"]
    texts = [rule["expr"] + " ".join(rule["annotations"].values()) for rule in group["rules"]]
    asked = set(re.findall(r"\belmo_\w+", " ".join(texts)))
    assert "elmo_requests_total" in asked
    assert asked <= names | {f"{name}_bucket" for name in names}


def test_prometheus_reads_these_alerts_and_has_a_key():
    assert PROMETHEUS["rule_files"] == ["alerts.yml"]
    for job in PROMETHEUS["scrape_configs"]:
        assert job["authorization"] == {"type": "Bearer", "credentials_file": "elmo.key"}


# What the tools themselves say, where there are such


def ran(*command: object) -> None:
    done = subprocess.run([str(each) for each in command], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that is there in place of /opt/elmo's."""
    text = (DEPLOY / "elmo-serve.service").read_text(encoding="utf-8")
    unit = tmp_path / "elmo-serve.service"
    unit.write_text(text.replace("/opt/elmo/bin/elmo", shutil.which("true") or "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True, timeout=60
    )
    ours = [line for line in done.stderr.splitlines() if "elmo-serve" in line]  # not the machine's own units
    assert not ours


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")
def test_prometheus_accepts_the_alerts():
    ran("promtool", "check", "rules", DEPLOY / "alerts.yml")
