"""Multiply matrices in pure Python and check the products.

Real work for one CPU core: the same number of multiplications wherever it
executes, so that its time compares machines. Each product is checked with
Freivalds' method: for a random vector x, (A B) x must equal A (B x). A wrong
product passes a round with a probability of at most one in a million. Lines
"BERTH_PROGRESS i/n" say how far it is.
"""

import random
import sys
import time

SIZE = 140  # Rows and columns: small enough to stay in a core's own cache.
PRODUCTS = 21  # One after the other, each with its progress line.
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
    total = 0
    for step in range(1, PRODUCTS + 1):
        a, b = matrix(rng, SIZE), matrix(rng, SIZE)
        c = multiply_rows(a, list(zip(*b)))
        if not is_product(a, b, c, rng):
            print(f"product {step} is wrong", file=sys.stderr)
            return 1
        total ^= checksum(c)
        print(f"BERTH_PROGRESS {step}/{PRODUCTS}", flush=True)
    seconds = time.monotonic() - started
    print(f"{PRODUCTS} products of {SIZE} x {SIZE}, checksum {total:016x}, {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
