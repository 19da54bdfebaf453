select year /
	10 from movies