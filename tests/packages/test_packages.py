#!/usr/bin/python3
"""test_packages.py [UNITTEST WORDS...]: what cpack makes of the sources.

Everything is built anew from a copy of the sources, as a packager would.  Of the slow ones (COREFAN_SLOW=1), one builds twice and
compares bytes, and one installs into a fresh Debian 12 (root, a Debian mirror and a minute are needed).
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SMALL = "name: small\nrounds: 2\narms: [gather]\nruntimes: [libuv, asyncio]\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"
SLOW = os.environ.get("COREFAN_SLOW", "0") != "0"


def run(*argv, **options):
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def package(scratch):
    """Copies the sources into scratch, builds them there and returns the folder with the packages."""
    listed = run("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (scratch / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, scratch / "sources" / name)
    build = scratch / "build"
    run("cmake", "-G", "Ninja", "-S", scratch / "sources", "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF")
    run("cmake", "--build", build, "-j2")
    run("cpack", "-G", "DEB;TGZ", cwd=build)
    return build


def contents(deb):
    """Path of each file of a package -> what tar says of it."""
    lines = run("dpkg-deb", "-c", deb).splitlines()
    return {line.split()[5].removeprefix("."): line for line in lines if not line.startswith("d")}


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="corefan-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        cls.packages = package(cls.scratch)
        cls.debs = {re.match("(.*)_", path.name)[1].split("_")[0]: path for path in cls.packages.glob("*.deb")}

    def test_two_packages_with_what_belongs_to_each(self):
        self.assertEqual(sorted(self.debs), ["corefan", "corefan-asyncio"])
        tool, python = contents(self.debs["corefan"]), contents(self.debs["corefan-asyncio"])
        self.assertLessEqual({"/usr/bin/corefan", "/usr/bin/corefan-worker", "/usr/share/man/man1/corefan.1.gz",
                              "/usr/share/man/man5/corefan-sweep.5.gz", "/usr/share/doc/corefan/copyright",
                              "/usr/share/bash-completion/completions/corefan"}, set(tool))
        self.assertLessEqual({"/usr/bin/corefan-worker-asyncio", "/usr/share/man/man1/corefan-worker-asyncio.1.gz",
                              "/usr/lib/corefan/python/corefan_worker/session.py"}, set(python))
        self.assertFalse(set(tool) & set(python))
        for path, line in (tool | python).items():
            self.assertIn("root/root", line)
            self.assertNotIn("__pycache__", path)
            self.assertTrue("/bin/" not in path or line.startswith("-rwxr-xr-x"), line)
        depends = run("dpkg-deb", "-f", self.debs["corefan"], "Depends")
        for library in ("libuv1", "libzmq5", "libsqlite3-0", "libhwloc15"):
            self.assertIn(library, depends)
        self.assertIn("corefan (>= ", run("dpkg-deb", "-f", self.debs["corefan-asyncio"], "Depends"))

    def test_lintian_finds_no_error(self):
        found = subprocess.run(["lintian", "--allow-root", *self.debs.values()], capture_output=True, text=True, check=False)
        self.assertEqual((found.returncode, found.stdout), (0, ""), found.stderr)

    def test_the_changelog_names_this_version(self):
        version = run(self.packages / "bin/corefan", "--version").split()[1]
        log = self.scratch / "log"
        run("dpkg-deb", "-x", self.debs["corefan"], log)
        with gzip.open(log / "usr/share/doc/corefan/changelog.gz", "rt") as changelog:
            self.assertTrue(changelog.readline().startswith(f"corefan ({version}) "))
        self.assertEqual(run("dpkg-deb", "-f", self.debs["corefan"], "Version").strip(), version)

    def test_the_tarball_runs_from_wherever_it_lies(self):
        (tarball,) = self.packages.glob("*.tar.gz")
        place = self.scratch / "some where"
        place.mkdir()
        run("tar", "-xzf", tarball, "-C", place)
        (self.packages / "bin").rename(self.packages / "gone")  # it may lean on nothing of the build
        self.addCleanup((self.packages / "gone").rename, self.packages / "bin")
        (place / "small.yaml").write_text(SMALL)
        (corefan,) = place.glob("*/bin/corefan")
        cpu = str(max(os.sched_getaffinity(0)))
        run(corefan, "run", "small.yaml", "--out", "run", "--cpus", cpu, "--co-run", "--quiet", cwd=place)
        cells = json.loads((place / "run/summary.json").read_text())["cells"]
        self.assertEqual([(cell["runtime"], cell["rounds"]) for cell in cells], [("libuv", 2), ("asyncio", 2)])

    @unittest.skipUnless(SLOW, "slow: builds everything once more")
    def test_the_same_sources_come_to_the_same_bytes(self):
        with tempfile.TemporaryDirectory(prefix="another-place-") as place:
            again = package(pathlib.Path(place))
            for first in [*self.packages.glob("*.deb"), *self.packages.glob("*.tar.gz")]:
                self.assertEqual(first.read_bytes(), (again / first.name).read_bytes(), first.name)

    @unittest.skipUnless(SLOW and os.getuid() == 0, "slow: makes a Debian 12 of its own, as root")
    def test_it_installs_runs_and_purges_on_a_fresh_debian(self):
        system = self.scratch / "debian"
        run("debootstrap", "--variant=minbase", "bookworm", system, self.mirror())
        for path in pathlib.Path("/etc/apt/apt.conf.d").glob("*"):
            if "Acquire" in path.read_text():  # how this network is reached
                shutil.copy(path, system / "etc/apt/apt.conf.d")
        shutil.copy("/etc/resolv.conf", system / "etc/resolv.conf")
        for deb in self.debs.values():
            shutil.copy(deb, system / "root")
        (system / "root/small.yaml").write_text(SMALL)
        before = self.files(system)
        self.inside(system, "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                            "--no-install-recommends /root/*.deb")
        self.inside(system, "cd /root && corefan run small.yaml --out run --co-run --quiet")
        self.inside(system, "cd /root && corefan run --set rounds=1 --out lab --co-run --quiet")
        cells = json.loads((system / "root/run/summary.json").read_text())["cells"]
        self.assertEqual({cell["runtime"] for cell in cells}, {"libuv", "asyncio"})
        self.inside(system, "DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq corefan corefan-asyncio")
        left = [path for path in self.files(system) - before if "corefan" in path and not path.startswith(("/root/", "/var/"))]
        self.assertEqual(left, [])

    @staticmethod
    def mirror():
        """Where this machine has its Debian 12 from."""
        sources = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
        text = "\n\n".join(path.read_text() for path in sources if path.is_file())
        found = re.search(r"^deb(?: \[.*\])? +(\S+) +bookworm ", text, re.M)
        for stanza in text.split("\n\n"):
            if not found and re.search(r"^Suites:.*\bbookworm(\s|$)", stanza, re.M):
                found = re.search(r"^URIs: *(\S+)", stanza, re.M)
        return found[1]

    @staticmethod
    def files(system):
        return {f"/{path.relative_to(system)}" for path in system.rglob("*") if path.is_relative_to(system / "usr") or
                path.is_relative_to(system / "etc")}

    @staticmethod
    def inside(system, script):
        mounts = f"mount -t proc proc {system}/proc && mount --rbind /sys {system}/sys && mount --rbind /dev {system}/dev"
        run("unshare", "--mount", "--propagation", "private", "sh", "-c", f"{mounts} && exec chroot {system} sh -c \"$1\"", "-", script)


if __name__ == "__main__":
    unittest.main()
