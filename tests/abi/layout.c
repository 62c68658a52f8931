/* Prints where the fields of the header's structs lie, one "struct field offset size" a line: what a binding
 * in another language must agree with. Compiled as strict C99, which is the other thing it tests. */
#include <kiln/attention.h>
#include <stdio.h>

#define FIELD(s, f) printf(#s " " #f " %zu %zu\n", offsetof(s, f), sizeof((s*)0)->f)

int main(void) {
  FIELD(kiln_attention_problem, struct_size);
  FIELD(kiln_attention_problem, dtype);
  FIELD(kiln_attention_problem, batch);
  FIELD(kiln_attention_problem, queries);
  FIELD(kiln_attention_problem, keys);
  FIELD(kiln_attention_problem, heads);
  FIELD(kiln_attention_problem, kv_heads);
  FIELD(kiln_attention_problem, head_dim);
  FIELD(kiln_attention_problem, scale);
  FIELD(kiln_attention_problem, causal);
  FIELD(kiln_attention_problem, allow_atomic);
  FIELD(kiln_attention_problem, reserved);
  FIELD(kiln_attention_problem, variant);
  FIELD(kiln_attention_problem, cu_queries);
  FIELD(kiln_attention_problem, cu_keys);
  FIELD(kiln_attention_problem, host_cu_queries);
  FIELD(kiln_attention_problem, host_cu_keys);
  FIELD(kiln_attention_problem, query_rows);
  FIELD(kiln_attention_problem, key_rows);
  FIELD(kiln_attention_view, data);
  FIELD(kiln_attention_view, batch_stride);
  FIELD(kiln_attention_view, row_stride);
  FIELD(kiln_attention_view, head_stride);
  printf("kiln_attention_problem - 0 %zu\n", sizeof(kiln_attention_problem));
  printf("kiln_attention_view - 0 %zu\n", sizeof(kiln_attention_view));
  printf("KILN_ABI_VERSION - 0 %d\n", KILN_ABI_VERSION);
  return 0;
}
