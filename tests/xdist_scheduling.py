"""How tests are handed out: one by one to whichever process is free, but for these files.

xdist's own groups (`xdist_group`) are names behind the ids of tests, which pytest 9.2 no longer
lets it change: version 3.8 ignores them without a word.
"""

from xdist.scheduler import LoadScopeScheduling

FILES = {
    "tests/cli/test_demo_keeps_its_promises.py": "each test sees what the demo before left behind",
    "tests/native/test_simcuda_sanitized.py": "the sanitized driver is built once for all",
    "tests/slurm/test_a_card_that_is_lost.py": "a Slurm is started once for all",
    "tests/slurm/test_jobs_and_programs.py": "a Slurm is started once for all",
    "tests/slurm/test_jobs_are_held.py": "a Slurm is started once for all",
    "tests/slurm/test_jobs_on_several_nodes.py": "a Slurm is started once for all",
    "tests/slurm/test_jobs_with_percents.py": "a Slurm is started once for all",
    "tests/slurm/test_time_of_jobs.py": "a Slurm is started once for each way to share",
    "tests/slurm/test_ways_to_start_jobs.py": "a Slurm is started once for all",
    "tests/slurm/test_steps_have_their_own_quota.py": "likewise",
    "tests/slurm/test_submissions_are_refused.py": "likewise",
    "tests/slurm/test_use_in_the_accounting.py": "likewise, with a database",
    "tests/native/test_wheels.py": "a release is made once for all, as it takes long",
}


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of the files above go to one process, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in FILES else nodeid
