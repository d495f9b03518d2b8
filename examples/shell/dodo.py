"""Two steps that take a moment each, for nightly.sh to chain."""

import gputasks as gt

DOIT_CONFIG = gt.doit_config(default_tasks=["fit", "report", "count"])

model = gt.Artifact("model", "model.json")


def task_fit():
    """Fit a line to the readings."""
    return gt.command(
        ["python", "fit.py", "readings.csv", model], file_dep=["readings.csv"], artifacts=[model]
    )


def task_report():
    """Say what the line predicts."""
    predict = (
        "import json; m = json.load(open('model.json')); print(m['intercept'] + 12 * m['slope'])"
    )
    return gt.command(
        f'python -c "{predict}" > report.txt',
        shell=True,
        file_dep=[model],
        artifacts=["report.txt"],
    )


def task_count():
    """Count the readings; needs no model."""
    return gt.command(
        "tail -n +2 readings.csv | wc -l > count.txt",
        shell=True, file_dep=["readings.csv"], artifacts=["count.txt"],
    )  # fmt: skip
