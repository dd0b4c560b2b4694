// The steps of MD5 (RFC 1321) for two streams by turns: those of one are a chain, so that a
// core has time for the other's.

#include "textflag.h"

// ADD adds the constant of step i and word m of the block at p to a.
#define ADD(p, a, i, m) \
	ADDL (i*4)(R14), a \
	ADDL (m*4)(p), a

// TURN adds t, rotates a by s bits, and adds b.
#define TURN(a, b, s, t) \
	ADDL t, a  \
	ROLL $s, a \
	ADDL b, a

// F has d ^ (b & (c ^ d)): the bits of c where b has ones, else those of d.
#define F(p, a, b, c, d, i, m, s, t) \
	ADD(p, a, i, m) \
	MOVL c, t \
	XORL d, t \
	ANDL b, t \
	XORL d, t \
	TURN(a, b, s, t)

// G has b & d and c &^ d, which have no bit in common.
#define G(p, a, b, c, d, i, m, s, t) \
	ADD(p, a, i, m) \
	MOVL d, t \
	NOTL t    \
	ANDL c, t \
	ADDL t, a \
	MOVL d, t \
	ANDL b, t \
	TURN(a, b, s, t)

// H has b ^ c ^ d.
#define H(p, a, b, c, d, i, m, s, t) \
	ADD(p, a, i, m) \
	MOVL c, t \
	XORL d, t \
	XORL b, t \
	TURN(a, b, s, t)

// I has c ^ (b | ^d).
#define I(p, a, b, c, d, i, m, s, t) \
	ADD(p, a, i, m) \
	MOVL d, t \
	NOTL t    \
	ORL  b, t \
	XORL c, t \
	TURN(a, b, s, t)

// FOUR does four steps of both streams, the first of which is i. The words of the blocks are
// m, n, o and p.
#define FOUR(STEP, i, m, n, o, p, s, t, u, v) \
	STEP(SI, AX, BX, CX, DX, (i), m, s, R12)     \
	STEP(DI, R8, R9, R10, R11, (i), m, s, R13)   \
	STEP(SI, DX, AX, BX, CX, (i+1), n, t, R12)   \
	STEP(DI, R11, R8, R9, R10, (i+1), n, t, R13) \
	STEP(SI, CX, DX, AX, BX, (i+2), o, u, R12)   \
	STEP(DI, R10, R11, R8, R9, (i+2), o, u, R13) \
	STEP(SI, BX, CX, DX, AX, (i+3), p, v, R12)   \
	STEP(DI, R9, R10, R11, R8, (i+3), p, v, R13)

// func blocks(state *[2][4]uint32, data *[2]*byte, sines *[64]uint32, count int)
TEXT ·blocks(SB), NOSPLIT, $0-32
	MOVQ data+8(FP), R12
	MOVQ 0(R12), SI
	MOVQ 8(R12), DI
	MOVQ sines+16(FP), R14
	MOVQ state+0(FP), R15
	MOVL 0(R15), AX
	MOVL 4(R15), BX
	MOVL 8(R15), CX
	MOVL 12(R15), DX
	MOVL 16(R15), R8
	MOVL 20(R15), R9
	MOVL 24(R15), R10
	MOVL 28(R15), R11

next:
	FOUR(F, 0, 0, 1, 2, 3, 7, 12, 17, 22)
	FOUR(F, 4, 4, 5, 6, 7, 7, 12, 17, 22)
	FOUR(F, 8, 8, 9, 10, 11, 7, 12, 17, 22)
	FOUR(F, 12, 12, 13, 14, 15, 7, 12, 17, 22)

	FOUR(G, 16, 1, 6, 11, 0, 5, 9, 14, 20)
	FOUR(G, 20, 5, 10, 15, 4, 5, 9, 14, 20)
	FOUR(G, 24, 9, 14, 3, 8, 5, 9, 14, 20)
	FOUR(G, 28, 13, 2, 7, 12, 5, 9, 14, 20)

	FOUR(H, 32, 5, 8, 11, 14, 4, 11, 16, 23)
	FOUR(H, 36, 1, 4, 7, 10, 4, 11, 16, 23)
	FOUR(H, 40, 13, 0, 3, 6, 4, 11, 16, 23)
	FOUR(H, 44, 9, 12, 15, 2, 4, 11, 16, 23)

	FOUR(I, 48, 0, 7, 14, 5, 6, 10, 15, 21)
	FOUR(I, 52, 12, 3, 10, 1, 6, 10, 15, 21)
	FOUR(I, 56, 8, 15, 6, 13, 6, 10, 15, 21)
	FOUR(I, 60, 4, 11, 2, 9, 6, 10, 15, 21)

	// The states before the blocks are still in memory.
	ADDL 0(R15), AX
	ADDL 4(R15), BX
	ADDL 8(R15), CX
	ADDL 12(R15), DX
	ADDL 16(R15), R8
	ADDL 20(R15), R9
	ADDL 24(R15), R10
	ADDL 28(R15), R11
	MOVL AX, 0(R15)
	MOVL BX, 4(R15)
	MOVL CX, 8(R15)
	MOVL DX, 12(R15)
	MOVL R8, 16(R15)
	MOVL R9, 20(R15)
	MOVL R10, 24(R15)
	MOVL R11, 28(R15)

	ADDQ $64, SI
	ADDQ $64, DI
	DECQ count+24(FP)
	JNE  next
	RET
