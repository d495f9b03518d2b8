"""A straight line through the readings, by least squares: `model.json`."""

import csv
import json
import sys

source, out = sys.argv[1:]
with open(source, encoding="utf-8", newline="") as file:
    points = [(float(row["hours"]), float(row["score"])) for row in csv.DictReader(file)]
count = len(points)
mean_x, mean_y = (sum(column) / count for column in zip(*points, strict=True))
slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
    (x - mean_x) ** 2 for x, _ in points
)
model = {"slope": round(slope, 4), "intercept": round(mean_y - slope * mean_x, 4), "rows": count}
with open(out, "w", encoding="utf-8") as file:
    json.dump(model, file)
