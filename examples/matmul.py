"""Multiply two matrices in pure Python and check the product.

Real work for one CPU core: the same number of multiplications wherever it
executes, so that its time compares machines. The product is checked with
Freivalds' method: for a random vector x, (A B) x must equal A (B x). A wrong
product passes a round with a probability of at most one in a million. Lines
"BERTH_PROGRESS i/n" say how far it is.
"""

import random
import sys
import time

SIZE = 392  # Rows and columns of each matrix.
STEPS = 28  # Progress lines.
ROUNDS = 3  # Of the check.
MODULUS = 1_000_003  # A prime; elements are integers below it, so nothing rounds.


def matrix(rng, size):
    """Return a square matrix of random integers below MODULUS."""
    return [[rng.randrange(MODULUS) for _ in range(size)] for _ in range(size)]


def multiply_rows(rows, columns):
    """Return the rows of the product of rows with the given columns."""
    product = []
    for row in rows:
        line = []
        for column in columns:
            total = 0
            for x, y in zip(row, column):
                total += x * y
            line.append(total % MODULUS)
        product.append(line)
    return product


def apply(matrix, vector):
    """Return the product of a matrix with a vector."""
    return [sum(x * y for x, y in zip(row, vector)) % MODULUS for row in matrix]


def is_product(a, b, c, rng):
    """Report whether c is the product of a and b, almost surely."""
    for _ in range(ROUNDS):
        x = [rng.randrange(MODULUS) for _ in range(SIZE)]
        if apply(a, apply(b, x)) != apply(c, x):
            return False
    return True


def checksum(matrix):
    """Return one number that depends on every element and its place."""
    total = 0
    for row in matrix:
        for value in row:
            total = (total * 31 + value) % (2**61 - 1)
    return total


def main():
    started = time.monotonic()
    rng = random.Random(42)
    a, b = matrix(rng, SIZE), matrix(rng, SIZE)
    columns = list(zip(*b))

    c = []
    for step in range(1, STEPS + 1):
        c += multiply_rows(a[len(c) : SIZE * step // STEPS], columns)
        print(f"BERTH_PROGRESS {step}/{STEPS}", flush=True)

    if not is_product(a, b, c, rng):
        print("the product is wrong", file=sys.stderr)
        return 1
    seconds = time.monotonic() - started
    print(f"{SIZE} x {SIZE} product, checksum {checksum(c):016x}, {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
