/* Files that other processes may have: what backends call. Not exported. */
#ifndef WEIR_FILE_SERVER_H
#define WEIR_FILE_SERVER_H

/* 0 if there is no memory for the note; then others can only take it by themselves. */
int files_offer(int file);
/* Closes it too, so that its number is nobody else's before it is withdrawn. */
void files_withdraw(int file);

#endif
