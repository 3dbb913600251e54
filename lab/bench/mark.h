/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How a program in the lab tells nearwalk's QEMU plugin where a measured section
 * begins and ends: a seven-byte NOP whose displacement no compiler emits. It
 * does nothing on any x86-64 CPU, costs one instruction, and needs no plugin.
 *
 *     0f 1f 80 CC 4e 50 53      nopl 0x53504eCC(%rax)
 */
#ifndef NEARWALK_MARK_H
#define NEARWALK_MARK_H

#define NEARWALK_MARK(code)                                                     \
	asm volatile(".byte 0x0f, 0x1f, 0x80, " #code ", 0x4e, 0x50, 0x53"     \
		     : : : "memory")

/* On this CPU, a section begins; it ends at the next end on the same CPU. */
#define nearwalk_mark_begin()	NEARWALK_MARK(0x01)
#define nearwalk_mark_end()	NEARWALK_MARK(0x02)
/* A program starts: the plugin numbers its sections from 0. */
#define nearwalk_mark_program()	NEARWALK_MARK(0x03)

#endif
