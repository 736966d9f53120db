/* Built against an installed tree alone (install_tree_test.py). */
#include <resid/resid.h>
#include <stdio.h>

int main(void) {
  puts("linked against libresid");
  return 0;
}
