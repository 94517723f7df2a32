"""The table and the figures of the task of clusters."""

import dataclasses

from experiments.core.report.style import BLACK
from experiments.vmoe.report import PRESENTATION as OF_ROUTERS
from experiments.vmoe_clusters.kinds import BEST, KINDS

PRESENTATION = dataclasses.replace(
    OF_ROUTERS,
    experiment="vmoe_clusters",
    title="the task of clusters",
    kinds=KINDS,
    method=lambda fields: "the best assignment" if fields["router.name"] == BEST else OF_ROUTERS.method(fields),
    look=lambda fields: (BLACK, "-") if fields["router.name"] == BEST else OF_ROUTERS.look(fields),
)
