/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Translation Ranger: brings pages of a process together.  See mm/ranger/pass.c.
 */
#ifndef _LINUX_RANGER_H
#define _LINUX_RANGER_H

struct mm_struct;
struct seq_file;

void ranger_show(struct seq_file *m, struct mm_struct *mm);
int ranger_run(char *text, struct mm_struct *mm);

#endif /* _LINUX_RANGER_H */
