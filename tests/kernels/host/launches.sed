s/([A-Za-z_]+(<[A-Za-z0-9, ]+>)?)<<<([^;]*)>>>\(([^;]*)\);/card_launch(card_kernel(\1), \3, card_bind([](auto... a) { \1(a...); }, \4));/g
s/extern __shared__ __align__\(16\) unsigned char memory\[\];/unsigned char *memory = card_shared;/g
