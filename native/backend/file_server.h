/* Files that other processes may fetch: what backends call. Not exported. */
#ifndef WEIR_FILE_SERVER_H
#define WEIR_FILE_SERVER_H

/* Lets other processes fetch the file. 0 if there is no memory; then they can only take it by pidfd_getfd. */
int files_offer(int file);
/* Withdraws the file and closes it, both inside one lock: so its number cannot mean another file in between. */
void files_withdraw(int file);

#endif
