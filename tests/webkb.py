"""Small graphs in the files of WebKB, to stand in for the real ones where those are not."""

import numpy as np


def write_webkb(root, names=("texas", "cornell"), nodes=60, features=12, classes=3):
    """A folder for ``--root``: binary features that tell the class, and a few directed edges."""
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        raw = root / "WebKB" / name / "raw"
        raw.mkdir(parents=True)
        label = rng.integers(classes, size=nodes)
        label[: 2 * classes] = np.arange(2 * classes) % classes
        x = rng.random((nodes, features)) < 0.15
        x[np.arange(nodes), label] = True
        lines = [f"{i}\t{','.join(str(int(v)) for v in x[i])}\t{label[i]}" for i in range(nodes)]
        _write(raw / "out1_node_feature_label.txt", "node_id\tfeature\tlabel", lines)
        edges = rng.integers(nodes, size=(3 * nodes, 2))
        _write(raw / "out1_graph_edges.txt", "node_id\tnode_id", [f"{i}\t{j}" for i, j in edges])
        for number in range(10):
            part = rng.permutation(nodes) * 5 // nodes  # 3 of 5 to train on, 1 to choose by, 1 to test on
            masks = {"train_mask": part < 3, "val_mask": part == 3, "test_mask": part == 4}
            np.savez(raw / f"{name}_split_0.6_0.2_{number}.npz", **masks)
    return root


def _write(path, head, lines):
    path.write_text("\n".join([head, *lines]) + "\n")
