select 1 as a,
	2 as b,
	wrong as c
from movies