"""Where rows come from: densities on the plane, benchmark tables, images, and tables of your own."""
