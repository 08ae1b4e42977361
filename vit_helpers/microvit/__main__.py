"""python -m vit_helpers.microvit"""

from vit_helpers.microvit.microvit import main

if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("stopped") from None
