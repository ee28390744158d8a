"""Notices an installation of the original Horovod, whose files have the same names."""

from __future__ import annotations

from importlib import metadata

#: Ends the version of a distribution ``horovod`` that only requires this one (see requirement/).
OURS = "+syrtos"


def refuse() -> None:
    """Raise if the original Horovod is installed as well.

    Raises
    ------
    ImportError
        It says where the original is and how to have one of the two.
    """
    try:
        found = metadata.distribution("horovod")
    except metadata.PackageNotFoundError:
        return
    if found.version.endswith(OURS):
        return
    # The folder of the metadata, such as horovod-0.28.1.dist-info.
    where = getattr(found, "_path", None) or found.locate_file("")
    raise ImportError(
        f"the original Horovod {found.version} is installed too ({where}), and syrtos-horovod has "
        "files of the same names, so that neither can be relied on. To use Syrtos: `pip uninstall "
        "horovod`, then `pip install --force-reinstall --no-deps syrtos-horovod`. To use the "
        "original: `pip uninstall syrtos-horovod`, then reinstall horovod."
    )
